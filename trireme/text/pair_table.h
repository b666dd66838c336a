// A map from pairs of ids to values. It is a hash table whose entries lie in one array, in the order of insertion.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::text {

template <typename Value>
class PairTable {
 public:
  using Pair = std::pair<int32_t, int32_t>;

  /// The value of `pair`, inserted if it is new. The reference is valid until the next insertion.
  Value& operator[](Pair pair) {
    if (entries_.size() * 2 >= slots_.size()) grow();
    size_t at = slot_of(pair);
    for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1))
      if (entries_[slots_[at] - 1].first == pair) return entries_[slots_[at] - 1].second;
    entries_.emplace_back(pair, Value());
    slots_[at] = static_cast<uint32_t>(entries_.size());
    return entries_.back().second;
  }

  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }

  /// Cost      one lookup for each pair; with many pairs, one pass over the table
  void clear() {
    if (entries_.size() * 8 > slots_.size()) {
      slots_.assign(slots_.size(), 0);
    } else {
      std::vector<size_t> used;
      for (uint32_t i = 0; i < entries_.size(); ++i) {
        size_t at = slot_of(entries_[i].first);
        while (slots_[at] != i + 1) at = (at + 1) & (slots_.size() - 1);
        used.push_back(at);
      }
      for (const size_t at : used) slots_[at] = 0;
    }
    entries_.clear();
  }

 private:
  size_t slot_of(Pair pair) const {
    const uint64_t key =
        static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32 | static_cast<uint32_t>(pair.second);
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> (64 - std::countr_zero(slots_.size())));
  }

  void grow() {
    slots_.assign(slots_.size() * 2, 0);
    for (uint32_t i = 0; i < entries_.size(); ++i) {
      size_t at = slot_of(entries_[i].first);
      while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = i + 1;
    }
  }

  std::vector<uint32_t> slots_ = std::vector<uint32_t>(64, 0);  // index of an entry + 1; 0: none
  std::vector<std::pair<Pair, Value>> entries_;
};

}  // namespace trireme::text
