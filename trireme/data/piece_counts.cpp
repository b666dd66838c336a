#include "trireme/data/piece_counts.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

namespace trireme::data {

PieceCounter::PieceCounter(const PreTokenizer& pre_tokenizer, int threads) : pre_tokenizer_(pre_tokenizer) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  counts_.resize(static_cast<size_t>(threads > 0 ? threads : cores));
}

size_t place_to_cut(std::string_view text, size_t wish) {
  const auto is_visible = [](char c) {
    return static_cast<unsigned char>(c) > ' ' && static_cast<unsigned char>(c) < 0x7F;
  };
  for (size_t at = text.find('\n', std::max<size_t>(wish, 1)); at != std::string_view::npos;
       at = text.find('\n', at + 1))
    if (at + 1 < text.size() && is_visible(text[at - 1]) && is_visible(text[at + 1])) return at + 1;
  return text.size();
}

void PieceCounter::add(std::string text) {
  batch_bytes_ += text.size();
  batch_.push_back(std::move(text));
  if (batch_bytes_ >= kBatchBytes) count_batch();
}

void PieceCounter::count(std::string_view text, Counts& counts) const {
  pre_tokenizer_.run(text, true, [&](std::string_view piece) {
    const auto at = counts.find(piece);
    if (at != counts.end()) {
      ++at->second;
    } else {
      counts.emplace(piece, 1);
    }
  });
}

void PieceCounter::count_batch() {
  constexpr size_t kSectionBytes = size_t{1} << 18;
  std::vector<std::string_view> sections;
  for (const std::string_view text : batch_)
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = begin + place_to_cut(text.substr(begin), kSectionBytes);
      sections.push_back(text.substr(begin, end - begin));
      begin = end;
    }
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> errors(counts_.size());
  const auto work = [&](size_t thread) {
    try {
      for (size_t i = next++; i < sections.size(); i = next++) count(sections[i], counts_[thread]);
    } catch (...) {
      errors[thread] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < counts_.size() && i < sections.size(); ++i) others.emplace_back(work, i);
    work(0);
  }
  batch_.clear();
  batch_bytes_ = 0;
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

std::vector<std::pair<std::string, int64_t>> PieceCounter::take() {
  count_batch();
  Counts all = std::move(counts_[0]);
  for (size_t i = 1; i < counts_.size(); ++i) {
    for (const auto& [piece, count] : counts_[i]) all[piece] += count;
    counts_[i].clear();
  }
  counts_[0].clear();
  std::vector<std::pair<std::string, int64_t>> sorted(all.begin(), all.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace trireme::data
