// Byte-pair encoding itself. A table holds the pairs that merge, each with its rank. A loop merges the pair of lowest
// rank (of equal ranks, the leftmost pair) until no pair is left. Short pieces are scanned. Long pieces use a heap, so
// a piece may be a whole document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::text {

class MergeTable {
 public:
  struct Merge {
    uint32_t rank = kNone;
    int32_t id = 0;  ///< of the token that the pair becomes
  };
  static constexpr uint32_t kNone = ~uint32_t{0};

  /// Reserves room for `merges` pairs.
  explicit MergeTable(size_t merges = 0);

  /// If a pair is added twice, its first rank counts.
  void add(int32_t left, int32_t right, Merge merge);

  /// The merge of the pair; its rank is kNone if the pair does not merge.
  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = slot_of(key);; at = (at + 1) & mask_) {
      if (keys_[at] == key) return merges_[at];
      if (keys_[at] == kEmpty) return {};
    }
  }

  /// Merges `ids` in place. Cost      n^2 / 16 for n up to 64 ids, n log n above
  void merge_all(std::vector<int32_t>& ids) const;

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_); }

  void merge_short(std::vector<int32_t>& ids) const;
  void merge_long(std::vector<int32_t>& ids) const;

  std::vector<uint64_t> keys_;
  std::vector<Merge> merges_;
  size_t mask_ = 0, size_ = 0;
  int shift_ = 63;
};

}  // namespace trireme::text
