// Which weights of one block are dropped: a hash of counters of its rows and columns, so nothing is kept.
#pragma once

#include "trireme/ops/attention/job-inl.h"

namespace trireme::ops {
namespace {

template <class M>
struct Drops {
  using Vec = typename M::Vec;
  static constexpr uint32_t kStep = 0x9E3779B9u;

  const AttentionDrops& drops;
  const uint32_t threshold = least_kept(drops.p);
  const typename M::Acc factor = static_cast<typename M::Acc>(1 / (1 - drops.p));
  uint32_t rows[kAttentionQueryBlock] = {};
  uint32_t columns[kAttentionKeyBlock] = {};

  bool active() const { return drops.p > 0; }

  /// The least hash of what is kept: p 2^32, rounded up, and at most the largest hash.
  static uint32_t least_kept(double p) {
    const auto below = static_cast<uint32_t>(p * 0x1p32);
    return below + (below < p * 0x1p32 && below < 0xFFFFFFFFu ? 1 : 0);
  }
  /// Rows of the block of `queries` from q0 on; the others have none.
  template <class J>
  void take_rows(const J& at, int64_t head, int64_t q0, int64_t queries) {
    const uint32_t* keys = drops.keys + at.b * drops.batch + q0;
    const auto number = static_cast<uint32_t>(drops.first_head + head);
    for (int64_t r = 0; r < queries; ++r) rows[r] = lowbias32(keys[r] + number * kStep);
  }
  void take_columns(int64_t k0) {
    for (int64_t j = 0; j < kKeyBlock<M>; ++j) {
      const int64_t key = k0 + j, late = key - drops.split;
      columns[j] = static_cast<uint32_t>(late < 0 ? drops.first_key + key : drops.later_key + late) * kStep;
    }
  }
  /// 1 / (1 - p) for the weights of row r, from column j on, that are kept, otherwise 0.
  Vec kept(int64_t r, int64_t j) const { return M::keep_hashed(columns + j, rows[r], threshold, M::splat(factor)); }
};

}  // namespace
}  // namespace trireme::ops
