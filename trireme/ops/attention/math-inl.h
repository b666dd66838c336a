// The vector type of attention's passes.
//
// A *unit* of an operand is one element, or (bfloat16 with AVX512-BF16) a pair of elements that one instruction
// multiplies and sums. In PlainMath below, units are single elements, and vectors are GCC's vector extension. What
// compilers make badly of it, kernels_avx2.cpp and math_avx512-inl.h replace.
#pragma once

#include "trireme/ops/attention/kernels.h"

namespace trireme::ops {
namespace {

constexpr int64_t kTile = 4;  // rows of a register tile
/// Keys of a block: 64 x 64 units, which are reused many times, should stay in the first-level cache.
template <class M>
constexpr int64_t kKeyBlock = kAttentionKeyBlock / 2 * M::kPair;
constexpr double kLog2e = 1.4426950408889634074, kLn2 = 0.69314718055994530942;

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};
inline double widen(double x) { return x; }
inline float widen(float x) { return x; }
inline float widen(Bfloat16 x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16); }
inline float widen(Float16 x) {  // as ops::widen
  const uint32_t size = static_cast<uint32_t>(x.bits & 0x7fff) << 13, sign = (x.bits & 0x8000u) << 16;
  if (size >= 0x0f800000) return __builtin_bit_cast(float, sign | size | 0x7f800000);  // infinity or NaN
  if (size >= 0x00800000) return __builtin_bit_cast(float, sign | (size + 0x38000000));
  const float least = static_cast<float>(size >> 13) * 0x1p-24f;  // below 2^-14
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, least));
}
inline void narrow(double x, double& y) { y = x; }
inline void narrow(float x, float& y) { y = x; }
inline void narrow(float x, Bfloat16& y) {  // to nearest, ties to even; NaN stays NaN
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  y.bits = static_cast<uint16_t>(x != x ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline void narrow(float x, Float16& y) {  // likewise, as ops::narrow
  const uint32_t bits = __builtin_bit_cast(uint32_t, x), size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
  if (size > 0x7f800000) {
    y.bits = static_cast<uint16_t>(sign | 0x7e00);
  } else if (size >= 0x477ff000) {  // 65520, half a step above the largest
    y.bits = static_cast<uint16_t>(sign | 0x7c00);
  } else if (size < 0x38800000) {  // below 2^-14: the addition rounds
    const float moved = __builtin_bit_cast(float, size) + 0.5f;
    y.bits = static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, moved) - 0x3f000000));
  } else {
    y.bits = static_cast<uint16_t>(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));
  }
}
/// The hash of dropout's masks (ops.h).
inline uint32_t lowbias32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}
inline double log2_of(double x) { return __builtin_log2(x); }
inline float log2_of(float x) { return __builtin_log2f(x); }

/// Vectors of kBytes with GCC's vector extension; a unit is one element. Panels of four rows are kPanel vectors wide.
template <class Real, int kBytes, int kPanelVectors>
struct PlainMath {
  using Acc = Real;
  using Unit = Real;
  static constexpr int64_t kPair = 1, kLanes = kBytes / sizeof(Real), kPanel = kPanelVectors;
  static constexpr bool kTransposes = false;  ///< has load_units and transpose, for pack_transposed
  typedef Real Vec __attribute__((vector_size(kBytes)));
  typedef Real LooseVec __attribute__((vector_size(kBytes), aligned(sizeof(Real)), may_alias));
  typedef uint32_t Bits __attribute__((vector_size(kBytes)));
  using UnitVec = Vec;

  static Vec load(const Real* p) { return *reinterpret_cast<const LooseVec*>(p); }
  static void store(Real* p, Vec v) { *reinterpret_cast<LooseVec*>(p) = v; }
  static Vec splat(Real x) { return x - Vec{}; }  // x - 0 is x for every x, but -0 + 0 is not -0
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
  /// v where first <= lane < end, else `other`.
  static Vec keep(Vec v, int64_t first, int64_t end, Real other) {
    Vec lane;
    for (int64_t i = 0; i < kLanes; ++i) lane[i] = static_cast<Real>(i);
    const Vec below = lane < splat(static_cast<Real>(end)) ? v : splat(other);
    return lane < splat(static_cast<Real>(first)) ? splat(other) : below;
  }
  /// 2^x for x up to about 0. float64 calls the math library. float32 is within about 1 ulp, and at least 2^-126. NaN
  /// stays NaN: maximum() returns its second argument if either is NaN.
  static Vec exp2(Vec x) {
    if constexpr (sizeof(Real) == 8) {
      for (int64_t i = 0; i < kLanes; ++i) x[i] = __builtin_exp2(x[i]);
      return x;
    } else {
      typedef int32_t Int __attribute__((vector_size(kBytes)));
      const Vec given = x;
      x = maximum(splat(-126.0f), x);
      const Vec shifted = x + 12582912.0f;  // 1.5 * 2^23: the low bits now hold round(x)
      const Vec f = x - (shifted - 12582912.0f);
      Vec y = f * 1.33978035e-3f + 9.67770915e-3f;  // minimax polynomial of 2^f on [-1/2, 1/2]
      y = y * f + 5.55034250e-2f;
      y = y * f + 2.40222212e-1f;
      y = y * f + 6.93147182e-1f;
      y = y * f + 1.0f;
      const Vec power = reinterpret_cast<Vec>(reinterpret_cast<Int>(y) + (reinterpret_cast<Int>(shifted) << 23));
      return given == given ? power : given;
    }
  }
  /// tanh(x) within a few ulp, also for small x: |tanh(x)| = -e / (2 + e), where e = 2^y - 1 and y = -2 |x| / ln 2.
  static Vec tanh(Vec x) {
    if constexpr (sizeof(Real) == 8) {
      for (int64_t i = 0; i < kLanes; ++i) x[i] = __builtin_tanh(x[i]);
      return x;
    } else {
      typedef int32_t Int __attribute__((vector_size(kBytes)));
      const Int sign = reinterpret_cast<Int>(x) & static_cast<int32_t>(0x80000000u);
      const Vec size = reinterpret_cast<Vec>(reinterpret_cast<Int>(x) ^ sign);
      const Vec y = maximum(splat(-64.0f), size * static_cast<float>(-2 * kLog2e));
      const Vec shifted = y + 12582912.0f;  // as in exp2: y = n + f
      const Vec f = y - (shifted - 12582912.0f);
      Vec q = f * 1.54035123e-04f + 1.33907355e-03f;  // minimax polynomial of (2^f - 1) / f on [-1/2, 1/2]
      q = q * f + 9.61823750e-03f;
      q = q * f + 5.55035743e-02f;
      q = q * f + 2.40226498e-01f;
      q = q * f + 6.93147188e-01f;
      const Vec power = reinterpret_cast<Vec>((reinterpret_cast<Int>(shifted) << 23) + 0x3f800000);  // 2^n
      const Vec e = power * (f * q) + (power - 1.0f);
      return reinterpret_cast<Vec>(reinterpret_cast<Int>(e / (-2.0f - e)) | sign);
    }
  }
  /// The hash of each lane. GCC deduces no vector type for a template.
  static Bits lowbias32(Bits x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
  }
  /// `factor` in the lanes whose hash of counters[lane] + key is at least `threshold`, otherwise 0.
  static Vec keep_hashed(const uint32_t* counters, uint32_t key, uint32_t threshold, Vec factor) {
    if constexpr (sizeof(Real) == 8) {
      for (int64_t i = 0; i < kLanes; ++i)
        if (ops::lowbias32(counters[i] + key) < threshold) factor[i] = 0;
      return factor;
    } else {
      typedef uint32_t LooseBits __attribute__((vector_size(kBytes), aligned(4), may_alias));
      const Bits hash = lowbias32(*reinterpret_cast<const LooseBits*>(counters) + key);
      return reinterpret_cast<Vec>(reinterpret_cast<Bits>(factor) & reinterpret_cast<Bits>(hash >= threshold));
    }
  }
  static void store_rows(Unit* row0, Unit* row1, Vec v0, Vec v1) { store(row0, v0), store(row1, v1); }
  static void store_columns(Unit*, Vec, Vec) {}  // units are not pairs: the row-major copy is used
  static Unit unit(Real x) { return x; }

  // Loads and stores of the tensors' elements.
  static Vec widen_load(const Real* p) { return load(p); }
  template <class Storage>
  static Vec widen_load(const Storage* p) {
    Real x[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) x[i] = widen(p[i]);
    return load(x);
  }
  static void narrow_store(Real* p, Vec v) { store(p, v); }
  template <class Storage>
  static void narrow_store(Storage* p, Vec v) {
    for (int64_t i = 0; i < kLanes; ++i) narrow(v[i], p[i]);
  }
};

/// sum over j of a[j] b[j]
template <class M, class Storage>
typename M::Acc dot(const Storage* a, const Storage* b, int64_t n) {
  typename M::Vec sums = M::splat(0);
  int64_t j = 0;
  for (; j + M::kLanes <= n; j += M::kLanes) sums += M::widen_load(a + j) * M::widen_load(b + j);
  typename M::Acc sum = M::total(sums);
  for (; j < n; ++j) sum += widen(a[j]) * widen(b[j]);
  return sum;
}

/// to[j] = from[j] * factor, rounded once
template <class M, class Storage>
void scale_row(Storage* to, const typename M::Acc* from, typename M::Acc factor, int64_t n) {
  int64_t j = 0;
  for (; j + M::kLanes <= n; j += M::kLanes) M::narrow_store(to + j, M::load(from + j) * factor);
  for (; j < n; ++j) narrow(from[j] * factor, to[j]);
}

}  // namespace
}  // namespace trireme::ops
