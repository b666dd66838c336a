#include "trireme/data/token_stats.h"

#include <algorithm>
#include <vector>

namespace trireme::data {
namespace {

constexpr int64_t kCountedIds = int64_t{1} << 24;

class IdCounter {
 public:
  IdCounter(TokenStats& stats, int64_t vocab_size, std::optional<int64_t> unknown_id)
      : stats_(stats), vocab_size_(vocab_size), unknown_id_(unknown_id), seen_(kCountedIds) {
    if (unknown_id) stats.unknown_tokens = 0;
  }

  void take(std::span<const int64_t> ids) {
    for (const int64_t id : ids) {
      stats_.largest_id = std::max(stats_.largest_id, id);
      stats_.negative_ids += id < 0;
      if (id >= 0 && id < kCountedIds) seen_[static_cast<size_t>(id)] = true;
    }
    stats_.ids_outside += std::count_if(ids.begin(), ids.end(), [&](int64_t id) { return id >= vocab_size_; });
    if (unknown_id_) *stats_.unknown_tokens += std::count(ids.begin(), ids.end(), *unknown_id_);
  }

  void finish() { stats_.distinct_ids = std::count(seen_.begin(), seen_.end(), true); }

 private:
  TokenStats& stats_;
  int64_t vocab_size_;
  std::optional<int64_t> unknown_id_;
  std::vector<bool> seen_;
};

void count_lengths(const TokenSet& set, TokenStats& stats) {
  std::vector<int64_t> lengths(static_cast<size_t>(set.num_documents()));
  int64_t start = set.num_documents() == 0 ? 0 : set.document_start(0);
  for (size_t d = 0; d < lengths.size(); ++d) {
    const int64_t end = set.document_start(static_cast<int64_t>(d) + 1);
    lengths[d] = end - start;
    start = end;
  }
  stats.empty_documents = std::count(lengths.begin(), lengths.end(), 0);
  if (lengths.empty()) return;
  stats.mean_length = static_cast<double>(set.num_tokens()) / static_cast<double>(lengths.size());
  std::sort(lengths.begin(), lengths.end());
  for (size_t i = 0; i < kLengthPercentiles.size(); ++i) {
    const size_t rank = (lengths.size() * static_cast<size_t>(kLengthPercentiles[i]) + 99) / 100;  // 1 is the first
    stats.lengths[i] = lengths[std::max<size_t>(rank, 1) - 1];
  }
}

}  // namespace

TokenStats token_stats(const TokenSet& set, std::optional<int64_t> unknown_id,
                       const std::function<void(double)>& progress) {
  constexpr int64_t kPieceTokens = int64_t{1} << 16;
  TokenStats stats{.documents = set.num_documents(), .tokens = set.num_tokens()};
  stats.fingerprint = set.recompute_fingerprint();
  count_lengths(set, stats);
  const auto& about = set.about();
  IdCounter counter(stats, about ? about->vocab_size : kMostIds, unknown_id);
  std::vector<int64_t> ids;
  for (int64_t at = 0; at < stats.tokens; at += static_cast<int64_t>(ids.size())) {
    ids.resize(static_cast<size_t>(std::min(kPieceTokens, stats.tokens - at)));
    set.view().copy(at, ids);  // as they are, damaged or not
    counter.take(ids);
    const auto mask = set.mask().subspan(set.has_mask() ? static_cast<size_t>(at) : 0, set.has_mask() ? ids.size() : 0);
    stats.supervised_tokens +=
        set.has_mask() ? std::count(mask.begin(), mask.end(), std::byte{1}) : static_cast<int64_t>(ids.size());
    stats.mask_outside += std::ranges::count_if(mask, [](std::byte b) { return b > std::byte{1}; });
    if (progress) progress(static_cast<double>(at) / static_cast<double>(stats.tokens));
  }
  counter.finish();
  return stats;
}

}  // namespace trireme::data
