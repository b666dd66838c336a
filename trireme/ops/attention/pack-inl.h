// Packs operands of products: rows [rows, d] with a stride become units [rows_padded, dim], padded with zeros.
#pragma once

#include "trireme/ops/attention/math-inl.h"

namespace trireme::ops {
namespace {

/// Packs one row into units along the row; returns the number of units.
template <class M, class Storage>
int64_t pack_row(typename M::Unit* to, const Storage* x, int64_t d) {
  if constexpr (M::kPair == 2) {  // a pair is two neighbours, the earlier one in the low half, as in memory
    constexpr int64_t kChunk = 16;  // a constant length, so that memcpy is inlined
    int64_t u = 0;
    for (; u + kChunk <= d / 2; u += kChunk) __builtin_memcpy(to + u, x + 2 * u, kChunk * sizeof(*to));
    for (; u < d / 2; ++u) to[u] = M::unit(x[2 * u], x[2 * u + 1]);
    if (d % 2) to[d / 2] = M::unit(x[d - 1], Storage{});
    return (d + 1) / 2;
  } else {
    int64_t u = 0;
    for (; u + M::kLanes <= d; u += M::kLanes) M::store(to + u, M::widen_load(x + u));
    for (; u < d; ++u) to[u] = widen(x[u]);
    return d;
  }
}

/// Fetches `count` elements that are packed later. Their lines are too many to be fetched at once: that would stall as
/// reading them does. Null: none.
template <class Storage>
void fetch(const Storage* later, int64_t first, int64_t count) {
  if (later == nullptr) return;
  const char* from = reinterpret_cast<const char*>(later + first);
  for (int64_t byte = 0; byte < count * static_cast<int64_t>(sizeof(Storage)); byte += 64)
    __builtin_prefetch(from + byte);
}

/// Units along the row: the left operand of Q K^T and dO V^T. Beside each row it fetches one from `later` on.
template <class M, class Storage>
void pack_rows(typename M::Unit* to, const Storage* from, int64_t stride, int64_t rows, int64_t rows_padded, int64_t d,
               int64_t dim, const Storage* later = nullptr) {
  for (int64_t r = 0; r < rows_padded; ++r, to += dim / M::kPair) {
    fetch(later, r * d, d);
    int64_t u = r < rows ? pack_row<M>(to, from + r * stride, d) : 0;
    for (; u < dim / M::kPair; ++u) to[u] = 0;
  }
}

/// Units down the column, [rows_padded / kPair, dim]: the right operand of products that sum over the rows.
template <class M, class Storage>
void pack_columns(typename M::Unit* to, const Storage* from, int64_t stride, int64_t rows, int64_t rows_padded,
                  int64_t d, int64_t dim, const Storage* later = nullptr) {
  if constexpr (M::kPair == 1) {
    pack_rows<M>(to, from, stride, rows, rows_padded, d, dim, later);
  } else {
    for (int64_t r = 0; r < rows_padded; r += 2, to += dim) {
      fetch(later, r * d, 2 * d);
      const Storage *x = from + r * stride, *y = x + stride;
      int64_t j = 0;
      if (r + 1 < rows)
        for (; j < d; ++j) to[j] = M::unit(x[j], y[j]);
      else if (r < rows)
        for (; j < d; ++j) to[j] = M::unit(x[j], Storage{});
      for (; j < dim; ++j) to[j] = 0;
    }
  }
}

/// The transpose of one block of keys, [dim / kPair][key block]: the right operand that sums over d. Where it
/// transposes in registers, it fetches as many elements from `later` on.
template <class M, class Storage>
void pack_transposed(typename M::Unit* to, const Storage* from, int64_t stride, int64_t rows, int64_t d, int64_t dim,
                     const Storage* later = nullptr) {
  constexpr int64_t kKeys = kKeyBlock<M>;
  const int64_t units = dim / M::kPair;
  if constexpr (M::kTransposes) {
    for (int64_t r = 0; r < kKeys; r += M::kLanes)
      for (int64_t u = 0; u < units; u += M::kLanes) {
        fetch(later, (r * units + u * M::kLanes) * M::kPair, M::kLanes * M::kLanes * M::kPair);
        typename M::UnitVec x[M::kLanes];
#pragma GCC unroll 16
        for (int64_t i = 0; i < M::kLanes; ++i)
          x[i] = M::load_units(from + (r + i) * stride + u * M::kPair, r + i < rows ? d - u * M::kPair : 0);
        M::transpose(to + u * kKeys + r, kKeys, x, units - u);
      }
  } else {
    for (int64_t r = 0; r < kKeys; ++r) {
      const Storage* x = from + r * stride;
      int64_t u = 0;
      for (; r < rows && u < d; ++u) to[u * kKeys + r] = widen(x[u]);
      for (; u < units; ++u) to[u * kKeys + r] = 0;
    }
  }
}

}  // namespace
}  // namespace trireme::ops
