// Products that compute or use one block of scores, for forward and backward. They skip what the mask hides, 4 rows at
// a time.
#pragma once

#include "trireme/ops/attention/job-inl.h"
#include "trireme/ops/attention/product-inl.h"

namespace trireme::ops {
namespace {

/// Visible scores [rows, kKeys] = left [rows, dim] right.
template <class M, int kRows = kTile, class Right, class Width, class Fetch = Alone>
void score_block(typename M::Acc* scores, const typename M::Unit* left, const Right* right, int64_t rows, int64_t dim,
                 const Visible& visible, Width width, Ahead& ahead, Fetch&& fetch = {}) {
  constexpr int64_t kKeys = kKeyBlock<M>, kStep = larger(kTile, M::kLanes);
  multiply<M, kRows>(
      rows, width / M::kLanes, left, dim / M::kPair, 1, right, kKeys, scores, kKeys, false, ahead,
      [&](int64_t r) {
        const int64_t columns = smaller(width, round_up(visible.end(r + kTile - 1), kTile));
        return Trim{0, dim / M::kPair, visible.begin(r) / kStep * (kStep / M::kLanes),
                    (columns + M::kLanes - 1) / M::kLanes};
      },
      fetch);
}

/// The factor of a score in the exponent of 2: scale log2(e). Capped scores are tanh(score * scale / softcap); for them
/// it is softcap log2(e).
inline double exponent_scale(const AttentionCall& call) {
  return (call.softcap != 0 ? call.softcap : call.scale) * kLog2e;
}
/// The factor of a product inside the tanh; 0: there is no cap.
inline double cap_scale(const AttentionCall& call) { return call.softcap != 0 ? call.scale / call.softcap : 0; }

/// Visible scores become tanh(factor * score).
template <class M>
void cap_block(typename M::Acc* scores, typename M::Acc factor, int64_t rows, const Visible& visible, int64_t width) {
  const bool masked = !visible.all(kKeyBlock<M>);
  const auto by = M::splat(factor);
  for (int64_t r = 0; r < rows; ++r) {
    const Columns columns = masked ? columns_of_row<M>(visible, r / 2 * 2) : Columns{0, width};
    typename M::Acc* x = scores + r * kKeyBlock<M>;
    for (int64_t j = columns.first; j < columns.end; j += M::kLanes) M::store(x + j, M::tanh(M::load(x + j) * by));
  }
}

/// Only without a mask. Gives the last block's columns beyond the last key a score so low that they have no weight.
template <class M>
void hide_columns(typename M::Acc* scores, int64_t rows, int64_t first, int64_t width, typename M::Acc c) {
  const typename M::Acc hidden = c < 0 ? 1e30f : -1e30f;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = first; j < width; ++j) scores[r * kKeyBlock<M> + j] = hidden;
}

/// C [rows, dim] (+)= P [rows, keys of the block] B, P row-major.
template <class M, int kRows = kTile, class Right, class Width, class Fetch = Alone>
void weighted_rows(typename M::Acc* c, const typename M::Unit* p, const Right* b, int64_t rows, int64_t dim,
                   const Visible& visible, Width width, bool accumulate, Ahead& ahead, Fetch&& fetch = {}) {
  constexpr int64_t kKeys = kKeyBlock<M>;
  const int64_t vectors = dim / M::kLanes;
  multiply<M, kRows>(
      rows, vectors, p, kKeys / M::kPair, 1, b, dim, c, dim, accumulate, ahead,
      [&](int64_t r) {
        const int64_t end = (smaller(width, visible.end(r + kTile - 1)) + M::kPair - 1) / M::kPair;
        return Trim{smaller(end, visible.begin(r) / M::kPair), end, 0, vectors};
      },
      fetch);
}

/// C [keys of the block, dim] (+)= P^T B [rows, dim], P in pairs down the column.
template <class M, class Width>
void weighted_columns(typename M::Acc* c, const typename M::Unit* p, const typename M::Unit* b, int64_t rows,
                      int64_t dim, const Visible& visible, Width width, bool accumulate, Ahead& ahead) {
  constexpr int64_t kKeys = kKeyBlock<M>;
  const int64_t vectors = dim / M::kLanes;
  // Keys that these rows do not see have an empty sum: the first call to write them writes zeros.
  const int64_t reached = accumulate ? smaller(width, visible.end(rows - 1)) : width;
  multiply<M>(reached, vectors, p, 1, kKeys, b, dim, c, dim, accumulate, ahead, [&](int64_t key) {
    const int64_t end = (visible.rows_from(key + kTile - 1, rows) + M::kPair - 1) / M::kPair;
    return Trim{visible.rows_before(key, rows) / M::kPair, end, 0, vectors};
  });
}

}  // namespace
}  // namespace trireme::ops
