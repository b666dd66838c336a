// What attention's passes are made of: a small vector type, one blocked product, and packing of its operands.
//
// The surprise: one product serves everything. `Math` says what a *unit* of an operand is: one element, or (bfloat16
// with AVX512-BF16) a pair of elements that is multiplied and summed at once. P and dS are then written twice, as
// pairs along the row (for P V and dS K) and as pairs down the column (for P^T dO and dS^T Q): no transposition.
//
// Included once per instruction set, in an anonymous namespace: no symbol leaves its file.
#pragma once

#include "trireme/ops/attention_kernel.h"

namespace trireme::ops {
namespace {

constexpr int64_t kTile = 4;  // rows of a register tile
constexpr double kLog2e = 1.4426950408889634074, kLn2 = 0.69314718055994530942;

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

struct Bfloat16 {
  uint16_t bits;
};
inline double widen(double x) { return x; }
inline float widen(float x) { return x; }
inline float widen(Bfloat16 x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16); }
inline void narrow(double x, double& y) { y = x; }
inline void narrow(float x, float& y) { y = x; }
inline void narrow(float x, Bfloat16& y) {  // to nearest, ties to even; NaN stays NaN
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  y.bits = static_cast<uint16_t>(x != x ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Columns that row `r` of a score block on the diagonal must fill: what its register tile will read of it. Row r + 1
/// of a pair (r even) has the same number.
template <class M>
int64_t columns_of_row(int64_t r, int64_t offset) {
  return smaller(kAttentionKeyBlock, round_up(r + offset + 1, larger(kTile, M::kLanes)));
}

/// Vectors of kBytes with GCC's vector extension; a unit is one element. Panels are kPanel vectors wide.
template <class Real, int kBytes, int kPanelVectors>
struct PlainMath {
  using Acc = Real;
  using Unit = Real;
  static constexpr int64_t kPair = 1, kLanes = kBytes / sizeof(Real), kPanel = kPanelVectors;
  typedef Real Vec __attribute__((vector_size(kBytes)));
  typedef Real LooseVec __attribute__((vector_size(kBytes), aligned(sizeof(Real)), may_alias));
  using UnitVec = Vec;

  static Vec load(const Real* p) { return *reinterpret_cast<const LooseVec*>(p); }
  static void store(Real* p, Vec v) { *reinterpret_cast<LooseVec*>(p) = v; }
  static Vec splat(Real x) { return Vec{} + x; }
  static UnitVec load_unit(const Unit* p) { return load(p); }
  static UnitVec splat_unit(Unit x) { return splat(x); }
  static Vec multiply_add(Vec sum, UnitVec a, UnitVec b) { return sum + a * b; }
  static Vec maximum(Vec a, Vec b) { return a > b ? a : b; }
  static Real highest(Vec v) {
    Real x = v[0];
    for (int64_t i = 1; i < kLanes; ++i) x = v[i] > x ? v[i] : x;
    return x;
  }
  static Real total(Vec v) {
    Real x = v[0];
    for (int64_t i = 1; i < kLanes; ++i) x += v[i];
    return x;
  }
  /// v where lane < count, else `other`.
  static Vec keep_first(Vec v, int64_t count, Real other) {
    Vec lane;
    for (int64_t i = 0; i < kLanes; ++i) lane[i] = static_cast<Real>(i);
    return lane < splat(static_cast<Real>(count)) ? v : splat(other);
  }
  /// 2^x for x <= about 0, float64 by the library, float32 to 1 ulp or so; below 2^-126 it stays there.
  static Vec exp2(Vec x) {
    if constexpr (sizeof(Real) == 8) {
      for (int64_t i = 0; i < kLanes; ++i) x[i] = __builtin_exp2(x[i]);
      return x;
    } else {
      typedef int32_t Int __attribute__((vector_size(kBytes)));
      x = maximum(x, splat(-126.0f));
      const Vec shifted = x + 12582912.0f;  // 1.5 * 2^23: the low bits now hold round(x)
      const Vec f = x - (shifted - 12582912.0f);
      Vec y = f * 1.33978035e-3f + 9.67770915e-3f;  // minimax polynomial of 2^f on [-1/2, 1/2]
      y = y * f + 5.55034250e-2f;
      y = y * f + 2.40222212e-1f;
      y = y * f + 6.93147182e-1f;
      y = y * f + 1.0f;
      return reinterpret_cast<Vec>(reinterpret_cast<Int>(y) + (reinterpret_cast<Int>(shifted) << 23));
    }
  }
  static void store_rows(Unit* row0, Unit* row1, Vec v0, Vec v1) { store(row0, v0), store(row1, v1); }
  static void store_columns(Unit*, Vec, Vec) {}  // a unit has no pairs: the row-major copy serves
  static Unit unit(Real x) { return x; }
};

// ---- products ----

/// C [4, NV vectors] (+)= sum over p of A(i, p) B(p, :), where A(i, p) = a[i * row + p * step] is broadcast.
template <class M, int NV>
inline __attribute__((always_inline)) void multiply_tile(int64_t count, const typename M::Unit* a, int64_t row,
                                                         int64_t step, const typename M::Unit* b, int64_t ldb,
                                                         typename M::Acc* c, int64_t ldc, bool accumulate) {
  typename M::Vec sum[kTile][NV];
#pragma GCC unroll 8
  for (int i = 0; i < kTile; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) sum[i][j] = accumulate ? M::load(c + i * ldc + j * M::kLanes) : M::splat(0);
  for (int64_t p = 0; p < count; ++p) {
    typename M::UnitVec right[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) right[j] = M::load_unit(b + j * M::kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kTile; ++i) {
      const typename M::UnitVec left = M::splat_unit(a[i * row]);
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) sum[i][j] = M::multiply_add(sum[i][j], left, right[j]);
    }
    a += step, b += ldb;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kTile; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) M::store(c + i * ldc + j * M::kLanes, sum[i][j]);
}

/// What the triangle leaves of one row tile: units [begin, end) of the sum, the first `vectors` of the columns.
struct Trim {
  int64_t begin, end, vectors;
};

/// C [rows, vectors] (+)= A B, each row tile trimmed by trim(first row).
template <class M, class TrimOf>
void multiply(int64_t rows, int64_t vectors, const typename M::Unit* a, int64_t row, int64_t step,
              const typename M::Unit* b, int64_t ldb, typename M::Acc* c, int64_t ldc, bool accumulate, TrimOf trim) {
  const int64_t panels = (vectors + M::kPanel - 1) / M::kPanel, width = (vectors + panels - 1) / panels;
  for (int64_t j = 0; j < vectors; j += width) {
    for (int64_t i = 0; i < rows; i += kTile) {
      const Trim t = trim(i);
      const int64_t n = smaller(smaller(width, vectors - j), t.vectors - j), count = larger(0, t.end - t.begin);
      const auto* at = a + i * row + t.begin * step;
      const auto* bt = b + t.begin * ldb + j * M::kLanes;
      auto* ct = c + i * ldc + j * M::kLanes;
      if (n == 1) multiply_tile<M, 1>(count, at, row, step, bt, ldb, ct, ldc, accumulate);
      if (n == 2) multiply_tile<M, 2>(count, at, row, step, bt, ldb, ct, ldc, accumulate);
      if constexpr (M::kPanel >= 3)
        if (n == 3) multiply_tile<M, 3>(count, at, row, step, bt, ldb, ct, ldc, accumulate);
      if constexpr (M::kPanel >= 4)
        if (n == 4) multiply_tile<M, 4>(count, at, row, step, bt, ldb, ct, ldc, accumulate);
    }
  }
}

// ---- packing: [rows, d] at `stride` into zero-padded [rows_padded, dim] ----

/// Units along the row: the left operand of Q K^T and dO V^T.
template <class M, class Storage>
void pack_rows(typename M::Unit* to, const Storage* from, int64_t stride, int64_t rows, int64_t rows_padded, int64_t d,
               int64_t dim) {
  for (int64_t r = 0; r < rows_padded; ++r, to += dim / M::kPair) {
    const Storage* x = from + r * stride;
    int64_t u = 0;
    if (r < rows) {
      if constexpr (M::kPair == 1) {
        for (; u < d; ++u) to[u] = widen(x[u]);
      } else {
        for (; 2 * u + 1 < d; ++u) to[u] = M::unit(x[2 * u], x[2 * u + 1]);
        if (d % 2) to[u] = M::unit(x[d - 1], Storage{}), ++u;
      }
    }
    for (; u < dim / M::kPair; ++u) to[u] = 0;
  }
}

/// Units down the column, [rows_padded / kPair, dim]: the right operand of products that sum over the rows.
template <class M, class Storage>
void pack_columns(typename M::Unit* to, const Storage* from, int64_t stride, int64_t rows, int64_t rows_padded,
                  int64_t d, int64_t dim) {
  if constexpr (M::kPair == 1) {
    pack_rows<M>(to, from, stride, rows, rows_padded, d, dim);
  } else {
    for (int64_t r = 0; r < rows_padded; r += 2, to += dim) {
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

/// The transpose, in blocks of keys: [blocks][dim / kPair][key block]; the right operand that sums over d.
template <class M, class Storage>
void pack_transposed(typename M::Unit* to, const Storage* from, int64_t stride, int64_t rows, int64_t d, int64_t dim) {
  constexpr int64_t kKeys = kAttentionKeyBlock;
  for (int64_t block = 0; block < rows; block += kKeys, to += dim / M::kPair * kKeys) {
    for (int64_t r = 0; r < kKeys; ++r) {
      const Storage* x = from + (block + r) * stride;
      int64_t u = 0;
      if (block + r < rows) {
        if constexpr (M::kPair == 1) {
          for (; u < d; ++u) to[u * kKeys + r] = widen(x[u]);
        } else {
          for (; 2 * u + 1 < d; ++u) to[u * kKeys + r] = M::unit(x[2 * u], x[2 * u + 1]);
          if (d % 2) to[u * kKeys + r] = M::unit(x[d - 1], Storage{}), ++u;
        }
      }
      for (; u < dim / M::kPair; ++u) to[u * kKeys + r] = 0;
    }
  }
}

}  // namespace
}  // namespace trireme::ops
