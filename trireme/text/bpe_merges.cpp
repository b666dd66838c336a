#include "trireme/text/bpe_merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <queue>

#include "trireme/base/error.h"

namespace trireme::text {
namespace {
constexpr size_t kShort = 64;
}

MergeTable::MergeTable(size_t merges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(merges * 2, 2));
  keys_.assign(slots, kEmpty);
  merges_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
  check_invariant(++size_ <= keys_.size() / 2 + 1, "a table of merges holds what it was made for");
  const uint64_t key = key_of(left, right);
  size_t at = slot_of(key);
  while (keys_[at] != kEmpty && keys_[at] != key) at = (at + 1) & mask_;
  keys_[at] = key;  // of a merge that is listed twice the later place counts, as in PyPI's tokenizers
  merges_[at] = merge;
}

void MergeTable::merge_all(std::vector<int32_t>& ids) const {
  if (ids.size() < 2) return;
  ids.size() <= kShort ? merge_short(ids) : merge_long(ids);
}

void MergeTable::merge_short(std::vector<int32_t>& ids) const {
  std::array<Merge, kShort> merge;  // of ids i and i + 1
  size_t count = ids.size();
  for (size_t i = 0; i + 1 < count; ++i) merge[i] = find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (merge[i].rank < merge[best].rank) best = i;
    if (merge[best].rank == kNone) break;
    ids[best] = merge[best].id;
    std::shift_left(ids.data() + best + 1, ids.data() + count, 1);
    --count;
    if (best + 1 < count) {
      std::shift_left(merge.data() + best + 1, merge.data() + count, 1);
      merge[best] = find(ids[best], ids[best + 1]);
    }
    if (best > 0) merge[best - 1] = find(ids[best - 1], ids[best]);
  }
  ids.resize(count);
}

void MergeTable::merge_long(std::vector<int32_t>& ids) const {
  struct Symbol {
    int32_t id, before, after;  // neighbours' indices; id -1: merged into the one before
  };
  struct Candidate {
    uint32_t rank;
    int32_t at, id;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<Symbol> symbols(ids.size());
  std::vector<Candidate> first;
  const auto symbol = [&](int32_t at) -> Symbol& { return symbols[static_cast<size_t>(at)]; };
  for (int32_t i = 0; i < count; ++i) {
    symbol(i) = {ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1};
    if (i == 0) continue;
    const Merge merge = find(symbol(i - 1).id, symbol(i).id);
    if (merge.rank != kNone) first.push_back({merge.rank, i - 1, merge.id});
  }
  std::priority_queue candidates(std::greater<Candidate>(), std::move(first));
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const Merge merge = find(symbol(left).id, symbol(right).id);
    if (merge.rank != kNone) candidates.push({merge.rank, left, merge.id});
  };
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbol(best.at);
    if (left.id < 0 || left.after < 0) continue;
    Symbol& right = symbol(left.after);
    const Merge merge = find(left.id, right.id);
    if (merge.rank == kNone || merge.id != best.id) continue;  // the pair has changed since
    left.id = merge.id;
    left.after = right.after;
    right.id = -1;
    if (left.after >= 0) symbol(left.after).before = best.at;
    consider(left.before, best.at);
    consider(best.at, left.after);
  }
  size_t kept = 0;
  for (int32_t at = 0; at >= 0; at = symbol(at).after) ids[kept++] = symbol(at).id;
  ids.resize(kept);
}

}  // namespace trireme::text
