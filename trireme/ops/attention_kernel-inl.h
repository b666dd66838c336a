// Blocked causal attention, forward and backward, over a small vector type that each instruction set supplies.
//
// A job is one key/value head of one batch row. Its K and V are packed once and shared by the query heads of the
// group; 64 queries x 128 keys of scores live in cache at a time; blocks above the diagonal are skipped, and inside
// a block on the diagonal every product is trimmed to the triangle, 4 rows at a time. Only the log-sum-exp of each
// row is kept between forward and backward (Dao, FlashAttention-2, 2023).
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

// ---- the two passes ----

/// Where things are, for one job.
template <class M, class Storage>
struct Job {
  static constexpr int64_t kQueries = kAttentionQueryBlock, kKeys = kAttentionKeyBlock;
  const AttentionCall& call;
  const int64_t b, kv, group, s, d, dim, keys, row, out_row;
  char* cursor;

  Job(const AttentionCall& call_, int64_t job, void* scratch)
      : call(call_),
        b(job / call.num_kv_heads),
        kv(job % call.num_kv_heads),
        group(call.num_heads / call.num_kv_heads),
        s(call.sequence),
        d(call.head_dim),
        dim(round_up(d, 16)),
        keys(round_up(s, kKeys)),
        row((call.num_heads + 2 * call.num_kv_heads) * d),
        out_row(call.num_heads * d),
        cursor(static_cast<char*>(scratch)) {}

  int64_t q_at(int64_t head, int64_t position) const { return (b * s + position) * row + head * d; }
  int64_t k_at(int64_t position) const { return q_at(call.num_heads + kv, position); }
  int64_t v_at(int64_t position) const { return q_at(call.num_heads + call.num_kv_heads + kv, position); }
  int64_t out_at(int64_t head, int64_t position) const { return (b * s + position) * out_row + head * d; }
  const Storage* qkv() const { return static_cast<const Storage*>(call.qkv); }
  typename M::Acc* lse(int64_t head, int64_t position) const {
    return static_cast<typename M::Acc*>(call.lse) + (b * call.num_heads + head) * s + position;
  }
  template <class T>
  T* take(int64_t count) {
    char* p = cursor;
    cursor += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(p);
  }
};

/// Scores [rows, kKeys] = left [rows, dim] right, of which row r needs the first r + offset + 1 columns.
template <class M>
void score_block(typename M::Acc* scores, const typename M::Unit* left, const typename M::Unit* right, int64_t rows,
                 int64_t dim, int64_t offset) {
  constexpr int64_t kKeys = kAttentionKeyBlock, kVectors = kKeys / M::kLanes;
  multiply<M>(rows, kVectors, left, dim / M::kPair, 1, right, kKeys, scores, kKeys, false, [&](int64_t r) {
    const int64_t columns = smaller(kKeys, r + kTile + offset);
    return Trim{0, dim / M::kPair, (columns + M::kLanes - 1) / M::kLanes};
  });
}

/// C [rows, dim] (+)= P [rows, keys of the block] B, P row-major, trimmed to the triangle.
template <class M>
void weighted_rows(typename M::Acc* c, const typename M::Unit* p, const typename M::Unit* b, int64_t rows, int64_t dim,
                   int64_t offset, bool accumulate) {
  constexpr int64_t kKeys = kAttentionKeyBlock;
  const int64_t vectors = dim / M::kLanes;
  multiply<M>(rows, vectors, p, kKeys / M::kPair, 1, b, dim, c, dim, accumulate,
              [&](int64_t r) { return Trim{0, smaller(kKeys, r + kTile + offset) / M::kPair, vectors}; });
}

/// C [keys of the block, dim] (+)= P^T B [rows, dim], P in pairs down the column, trimmed to the triangle.
template <class M>
void weighted_columns(typename M::Acc* c, const typename M::Unit* p, const typename M::Unit* b, int64_t rows,
                      int64_t dim, int64_t offset, bool accumulate) {
  constexpr int64_t kKeys = kAttentionKeyBlock;
  const int64_t vectors = dim / M::kLanes;
  // Keys that these rows do not reach have an empty sum: zero where this call is the first to write.
  const int64_t reached = accumulate ? smaller(kKeys, rows + offset) : kKeys;
  multiply<M>(reached, vectors, p, 1, kKeys, b, dim, c, dim, accumulate,
              [&](int64_t key) { return Trim{larger(0, key - offset) / M::kPair, rows / M::kPair, vectors}; });
}

/// Turns scores into P = 2^(scores * c - highest), and carries `highest`, `sums` (per lane) and `o` along.
template <class M, bool kMasked>
void softmax_block(typename M::Acc* scores, typename M::Unit* p, typename M::Acc c, int64_t rows, int64_t offset,
                   int64_t dim, bool first, typename M::Acc* highest, typename M::Acc* sums, typename M::Acc* o) {
  using Vec = typename M::Vec;
  using Acc = typename M::Acc;
  constexpr int64_t kKeys = kAttentionKeyBlock, kLanes = M::kLanes;
  const Vec cv = M::splat(c);
  for (int64_t r = 0; r < rows; r += 2) {
    const int64_t columns = kMasked ? columns_of_row<M>(r, offset) : kKeys;
    for (int64_t h = 0; h < 2; ++h) {
      const Acc* x = scores + (r + h) * kKeys;
      Vec top = M::splat(-1e30f);
      for (int64_t j = 0; j < columns; j += kLanes) {
        Vec v = M::load(x + j) * cv;
        if (kMasked && j + kLanes > r + h + offset + 1) v = M::keep_first(v, r + h + offset + 1 - j, -1e30f);
        top = M::maximum(top, v);
      }
      const Acc before = first ? -1e30f : highest[r + h], now = M::highest(top);
      if (first) {
        highest[r + h] = now;
        M::store(sums + (r + h) * kLanes, M::splat(0));
      } else if (now > before) {
        highest[r + h] = now;
        const Vec shrink = M::exp2(M::splat(before - now));
        M::store(sums + (r + h) * kLanes, M::load(sums + (r + h) * kLanes) * shrink);
        for (Acc *y = o + (r + h) * dim, *end = y + dim; y < end; y += kLanes) M::store(y, M::load(y) * shrink);
      }
    }
    const Acc *x0 = scores + r * kKeys, *x1 = x0 + kKeys;
    const Vec top0 = M::splat(highest[r]), top1 = M::splat(highest[r + 1]);
    Vec sum0 = M::load(sums + r * kLanes), sum1 = M::load(sums + (r + 1) * kLanes);
    for (int64_t j = 0; j < columns; j += kLanes) {
      Vec p0 = M::exp2(M::load(x0 + j) * cv - top0), p1 = M::exp2(M::load(x1 + j) * cv - top1);
      if (kMasked && j + kLanes > r + offset + 1) {
        p0 = M::keep_first(p0, r + offset + 1 - j, 0);
        p1 = M::keep_first(p1, r + offset + 2 - j, 0);
      }
      sum0 += p0, sum1 += p1;
      M::store_rows(p + (r * kKeys + j) / M::kPair, p + ((r + 1) * kKeys + j) / M::kPair, p0, p1);
    }
    M::store(sums + r * kLanes, sum0), M::store(sums + (r + 1) * kLanes, sum1);
  }
}

template <class M, class Storage>
void forward_job(const AttentionCall& call, int64_t job, void* scratch) {
  using J = Job<M, Storage>;
  using Acc = typename M::Acc;
  using Unit = typename M::Unit;
  constexpr int64_t kQueries = J::kQueries, kKeys = J::kKeys;
  J at(call, job, scratch);
  const int64_t s = at.s, d = at.d, dim = at.dim;
  Unit* k_transposed = at.template take<Unit>(at.keys * dim / M::kPair);
  Unit* v_columns = at.template take<Unit>(at.keys * dim / M::kPair);
  Unit* q_rows = at.template take<Unit>(kQueries * dim / M::kPair);
  Acc* scores = at.template take<Acc>(kQueries * kKeys);
  Unit* p = M::kPair == 1 ? reinterpret_cast<Unit*>(scores) : at.template take<Unit>(kQueries * kKeys / M::kPair);
  Acc* o = at.template take<Acc>(kQueries * dim);
  Acc* highest = at.template take<Acc>(kQueries);
  Acc* sums = at.template take<Acc>(kQueries * M::kLanes);

  pack_transposed<M>(k_transposed, at.qkv() + at.k_at(0), at.row, s, d, dim);
  pack_columns<M>(v_columns, at.qkv() + at.v_at(0), at.row, s, at.keys, d, dim);
  const Acc c = static_cast<Acc>(call.scale * kLog2e);
  for (int64_t head = at.kv * at.group; head < (at.kv + 1) * at.group; ++head) {
    for (int64_t q0 = 0; q0 < s; q0 += kQueries) {
      const int64_t queries = smaller(kQueries, s - q0), rows = round_up(queries, kTile);
      pack_rows<M>(q_rows, at.qkv() + at.q_at(head, q0), at.row, queries, rows, d, dim);
      for (int64_t k0 = 0; k0 < q0 + rows; k0 += kKeys) {
        const int64_t offset = q0 - k0;
        score_block<M>(scores, q_rows, k_transposed + k0 * dim / M::kPair, rows, dim, offset);
        if (offset + 1 < kKeys)
          softmax_block<M, true>(scores, p, c, rows, offset, dim, k0 == 0, highest, sums, o);
        else
          softmax_block<M, false>(scores, p, c, rows, offset, dim, k0 == 0, highest, sums, o);
        weighted_rows<M>(o, p, v_columns + k0 * dim / M::kPair, rows, dim, offset, k0 != 0);
      }
      for (int64_t r = 0; r < queries; ++r) {
        const Acc sum = M::total(M::load(sums + r * M::kLanes)), inverse = 1 / sum;
        Storage* y = static_cast<Storage*>(call.out) + at.out_at(head, q0 + r);
        for (int64_t j = 0; j < d; ++j) narrow(o[r * dim + j] * inverse, y[j]);
        *at.lse(head, q0 + r) = static_cast<Acc>((highest[r] + __builtin_log2(static_cast<double>(sum))) * kLn2);
      }
    }
  }
}

/// scores -> P = exp(scores * scale - lse), and d_p -> dS = P (dP - D): P in pairs down the column, dS both ways.
template <class M, bool kMasked>
void gradient_block(const typename M::Acc* scores, const typename M::Acc* d_p, typename M::Unit* p_columns,
                    typename M::Unit* ds_rows, typename M::Unit* ds_columns, typename M::Acc c, int64_t rows,
                    int64_t offset, const typename M::Acc* lse2, const typename M::Acc* delta) {
  using Vec = typename M::Vec;
  constexpr int64_t kKeys = kAttentionKeyBlock, kLanes = M::kLanes;
  const Vec cv = M::splat(c);
  for (int64_t r = 0; r < rows; r += 2) {
    const int64_t columns = kMasked ? columns_of_row<M>(r, offset) : kKeys;
    const Vec lse0 = M::splat(lse2[r]), lse1 = M::splat(lse2[r + 1]);
    const Vec delta0 = M::splat(delta[r]), delta1 = M::splat(delta[r + 1]);
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int64_t at0 = r * kKeys + j, at1 = at0 + kKeys;
      Vec p0 = M::exp2(M::load(scores + at0) * cv - lse0), p1 = M::exp2(M::load(scores + at1) * cv - lse1);
      if (kMasked && j + kLanes > r + offset + 1) {
        p0 = M::keep_first(p0, r + offset + 1 - j, 0);
        p1 = M::keep_first(p1, r + offset + 2 - j, 0);
      }
      const Vec ds0 = p0 * (M::load(d_p + at0) - delta0), ds1 = p1 * (M::load(d_p + at1) - delta1);
      if constexpr (M::kPair == 1) M::store_rows(p_columns + at0, p_columns + at1, p0, p1);
      M::store_columns(p_columns + r / 2 * kKeys + j, p0, p1);
      M::store_rows(ds_rows + at0 / M::kPair, ds_rows + at1 / M::kPair, ds0, ds1);
      M::store_columns(ds_columns + r / 2 * kKeys + j, ds0, ds1);
    }
  }
}

template <class M, class Storage>
void backward_job(const AttentionCall& call, int64_t job, void* scratch) {
  using J = Job<M, Storage>;
  using Acc = typename M::Acc;
  using Unit = typename M::Unit;
  constexpr int64_t kQueries = J::kQueries, kKeys = J::kKeys, kPair = M::kPair;
  J at(call, job, scratch);
  const int64_t s = at.s, d = at.d, dim = at.dim;
  Unit* k_transposed = at.template take<Unit>(at.keys * dim / kPair);
  Unit* v_transposed = at.template take<Unit>(at.keys * dim / kPair);
  Unit* k_columns = at.template take<Unit>(at.keys * dim / kPair);
  Acc* dk = at.template take<Acc>(at.keys * dim);
  Acc* dv = at.template take<Acc>(at.keys * dim);
  Unit* q_rows = at.template take<Unit>(kQueries * dim / kPair);
  Unit* d_out_rows = at.template take<Unit>(kQueries * dim / kPair);
  Unit* q_columns = kPair == 1 ? q_rows : at.template take<Unit>(kQueries * dim / kPair);
  Unit* d_out_columns = kPair == 1 ? d_out_rows : at.template take<Unit>(kQueries * dim / kPair);
  Acc* dq = at.template take<Acc>(kQueries * dim);
  Acc* scores = at.template take<Acc>(kQueries * kKeys);
  Acc* d_p = at.template take<Acc>(kQueries * kKeys);
  // With single elements P takes the place of the scores, and dS that of dP.
  Unit* p_columns = kPair == 1 ? reinterpret_cast<Unit*>(scores) : at.template take<Unit>(kQueries * kKeys / kPair);
  Unit* ds_rows = kPair == 1 ? reinterpret_cast<Unit*>(d_p) : at.template take<Unit>(kQueries * kKeys / kPair);
  Unit* ds_columns = kPair == 1 ? ds_rows : at.template take<Unit>(kQueries * kKeys / kPair);
  Acc* lse2 = at.template take<Acc>(kQueries);
  Acc* delta = at.template take<Acc>(kQueries);

  pack_transposed<M>(k_transposed, at.qkv() + at.k_at(0), at.row, s, d, dim);
  pack_transposed<M>(v_transposed, at.qkv() + at.v_at(0), at.row, s, d, dim);
  pack_columns<M>(k_columns, at.qkv() + at.k_at(0), at.row, s, at.keys, d, dim);
  const Acc c = static_cast<Acc>(call.scale * kLog2e), scale = static_cast<Acc>(call.scale);
  Storage* const dqkv = static_cast<Storage*>(call.dqkv);
  const int64_t first_head = at.kv * at.group;
  for (int64_t head = first_head; head < first_head + at.group; ++head) {
    for (int64_t q0 = 0; q0 < s; q0 += kQueries) {
      const int64_t queries = smaller(kQueries, s - q0), rows = round_up(queries, kTile);
      const Storage* q = at.qkv() + at.q_at(head, q0);
      const Storage* d_out = static_cast<const Storage*>(call.d_out) + at.out_at(head, q0);
      const Storage* out = static_cast<const Storage*>(call.out) + at.out_at(head, q0);
      pack_rows<M>(q_rows, q, at.row, queries, rows, d, dim);
      pack_rows<M>(d_out_rows, d_out, at.out_row, queries, rows, d, dim);
      if constexpr (kPair != 1) {
        pack_columns<M>(q_columns, q, at.row, queries, rows, d, dim);
        pack_columns<M>(d_out_columns, d_out, at.out_row, queries, rows, d, dim);
      }
      for (int64_t r = 0; r < rows; ++r) {
        // Rows beyond the sequence have dO = Q = 0: whatever P they get adds nothing.
        Acc sum = 0;
        for (int64_t j = 0; r < queries && j < d; ++j)
          sum += widen(d_out[r * at.out_row + j]) * widen(out[r * at.out_row + j]);
        delta[r] = sum;
        lse2[r] = r < queries ? static_cast<Acc>(*at.lse(head, q0 + r) * kLog2e) : static_cast<Acc>(1e30f);
      }
      for (int64_t k0 = 0; k0 < q0 + rows; k0 += kKeys) {
        const int64_t offset = q0 - k0, block = k0 * dim / kPair;
        score_block<M>(scores, q_rows, k_transposed + block, rows, dim, offset);
        score_block<M>(d_p, d_out_rows, v_transposed + block, rows, dim, offset);
        if (offset + 1 < kKeys)
          gradient_block<M, true>(scores, d_p, p_columns, ds_rows, ds_columns, c, rows, offset, lse2, delta);
        else
          gradient_block<M, false>(scores, d_p, p_columns, ds_rows, ds_columns, c, rows, offset, lse2, delta);
        weighted_rows<M>(dq, ds_rows, k_columns + block, rows, dim, offset, k0 != 0);
        const bool add = head != first_head || offset != 0;
        weighted_columns<M>(dv + k0 * dim, p_columns, d_out_columns, rows, dim, offset, add);
        weighted_columns<M>(dk + k0 * dim, ds_columns, q_columns, rows, dim, offset, add);
      }
      for (int64_t r = 0; r < queries; ++r)
        for (int64_t j = 0; j < d; ++j) narrow(dq[r * dim + j] * scale, dqkv[at.q_at(head, q0 + r) + j]);
    }
  }
  for (int64_t r = 0; r < s; ++r) {
    for (int64_t j = 0; j < d; ++j) narrow(dk[r * dim + j] * scale, dqkv[at.k_at(r) + j]);
    for (int64_t j = 0; j < d; ++j) narrow(dv[r * dim + j], dqkv[at.v_at(r) + j]);
  }
}

}  // namespace
}  // namespace trireme::ops
