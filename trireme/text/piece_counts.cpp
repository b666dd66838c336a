#include "trireme/text/piece_counts.h"

#include <algorithm>

namespace trireme::text {

PieceCounter::Part::Part(PieceCounter& owner) : owner_(owner) {
  const std::lock_guard lock(owner_.mutex_);
  if (owner_.idle_.empty()) {
    counts_ = std::make_unique<Counts>();
    return;
  }
  counts_ = std::move(owner_.idle_.back());
  owner_.idle_.pop_back();
}

PieceCounter::Part::~Part() {
  const std::lock_guard lock(owner_.mutex_);
  owner_.idle_.push_back(std::move(counts_));
}

void PieceCounter::Part::add(std::string_view text) {
  owner_.pre_tokenizer_.run(text, TextBefore::nothing, [&](std::string_view piece) {
    auto at = counts_->find(piece);
    if (at == counts_->end()) at = counts_->emplace(piece, 0).first;
    ++at->second;
  });
}

std::vector<std::pair<std::string, int64_t>> PieceCounter::take() {
  Counts all;
  for (const auto& counts : idle_) {
    if (all.empty()) std::swap(all, *counts);
    for (const auto& [piece, count] : *counts) all[piece] += count;
  }
  idle_.clear();
  std::vector<std::pair<std::string, int64_t>> sorted(all.begin(), all.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace trireme::text
