// SiLU, GELU and the hyperbolic tangent of vectors, and their derivatives: for float32 and float64 by exponentials, for
// bfloat16 with AVX-512 by coarse ones and by parabolas. Included once per instruction set, as simd-inl.h.
#if defined(TRIREME_OPS_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_OPS_ACTIVATIONS_INL_H_
#undef TRIREME_OPS_ACTIVATIONS_INL_H_
#else
#define TRIREME_OPS_ACTIVATIONS_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "trireme/ops/parabolas.h"
#include "trireme/ops/simd-inl.h"
#include "trireme/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {

/// An activation's value and its derivative.
template <class V>
struct Slope {
  V value, slope;
};

/// silu(x) = x s, silu'(x) = s + silu(x) (1 - s), where s = sigmoid(x).
template <class T>
struct Silu {
  template <class D, class V>
  HWY_INLINE V value(D d, V x) const {
    return hn::Mul(x, sigmoid<T>(d, x).value);
  }
  template <class D, class V>
  HWY_INLINE Slope<V> slope(D d, V x) const {
    const auto s = sigmoid<T>(d, x);
    const V silu = hn::Mul(x, s.value);
    return {silu, hn::MulAdd(silu, s.complement, s.value)};
  }
};

/// gelu_tanh(x) = x/2 (1 + tanh(z/2)) = x s, s = sigmoid(z), where z = 2 sqrt(2/pi) (x + 0.044715 x^3). Its derivative
/// is s + x s (1 - s) z'(x).
template <class T, class = void>
struct Gelu {
  template <class D, class V>
  static HWY_INLINE Sigmoid<V> sigmoid_of_angle(D d, V x, V square) {
    const V cubic = hn::Set(d, kGeluCubic * kSigmoidScale<T>), linear = hn::Set(d, kGeluLinear * kSigmoidScale<T>);
    return sigmoid_of<T>(d, hn::Mul(x, hn::MulAdd(square, cubic, linear)));
  }
  template <class D, class V>
  HWY_INLINE V value(D d, V x) const {
    return hn::Mul(x, sigmoid_of_angle(d, x, hn::Mul(x, x)).value);
  }
  template <class D, class V, size_t kCount>
  HWY_INLINE void values(D d, V (&x)[kCount]) const {
    for (V& v : x) v = value(d, v);
  }
  template <class D, class V>
  HWY_INLINE Slope<V> slope(D d, V x) const {
    const V square = hn::Mul(x, x);
    const auto s = sigmoid_of_angle(d, x, square);
    const V angle_slope = hn::MulAdd(square, hn::Set(d, 3 * kGeluCubic), hn::Set(d, kGeluLinear));
    const V gelu = hn::Mul(x, s.value);
    return {gelu, hn::MulAdd(hn::Mul(gelu, s.complement), angle_slope, s.value)};
  }
};

#if TRIREME_OPS_AVX512
/// A function by parabolas.h.
template <class T>
struct LookedUp {
  using D = WideTag<T>;
  using V = hn::Vec<D>;

  explicit HWY_INLINE LookedUp(const Parabolas& table) {
    const float* from[] = {table.constant, table.linear, table.square};
    for (int k = 0; k < 3; ++k) low[k] = hn::Load(D(), from[k]), high[k] = hn::Load(D(), from[k] + hn::MaxLanes(D()));
  }

  /// a in [0, Parabolas::kEnd], or NaN.
  HWY_INLINE V of(D d, V a) const {
    const V piece = piece_of(d, a);
    return hn::MulAdd(hn::MulAdd(coefficient(2, piece), a, coefficient(1, piece)), a, coefficient(0, piece));
  }
  /// Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  static HWY_INLINE V piece_of(D d, V a) {
    return hn::MulAdd(a, hn::Set(d, Parabolas::kPiecesPerUnit), hn::Set(d, 12582912.0f));
  }
  HWY_INLINE V coefficient(int k, V piece) const {
    return V{_mm512_permutex2var_ps(low[k].raw, _mm512_castps_si512(piece.raw), high[k].raw)};
  }
  V low[3], high[3];
};

/// |x| up to where the parabolas end; a NaN stays one.
template <class D, class V>
HWY_INLINE V bounded(D d, V x) {
  return V{_mm512_maskz_min_ps(kAll, hn::Set(d, Parabolas::kEnd).raw, hn::Abs(x).raw)};  // the second where one is NaN
}

/// By parabolas.h. The derivative for x <= 0 is t - a t (1 - t) z'(a), and 1 less that of -x for others.
template <class T>
struct Gelu<T, std::enable_if_t<kIsBfloat16<T>>> {
  using D = WideTag<T>;
  using V = hn::Vec<D>;

  HWY_INLINE Gelu() : tail(gelu_tail()) {}

  HWY_INLINE V value(D d, V x) const {
    const V a = magnitude(d, x);
    return hn::NegMulAdd(a, tail.of(d, a), at_least_zero(d, x));
  }
  /// value() of each, step by step for all of them: the processor finds more to do at once (Zen 4: a tenth faster).
  template <size_t kCount>
  HWY_INLINE void values(D d, V (&x)[kCount]) const {
    V a[kCount], piece[kCount], t[kCount];
    for (size_t i = 0; i < kCount; ++i) a[i] = magnitude(d, x[i]);
    for (size_t i = 0; i < kCount; ++i) x[i] = at_least_zero(d, x[i]);
    for (size_t i = 0; i < kCount; ++i) piece[i] = tail.piece_of(d, a[i]);
    for (size_t i = 0; i < kCount; ++i) t[i] = tail.coefficient(2, piece[i]);
    for (size_t i = 0; i < kCount; ++i) t[i] = hn::MulAdd(t[i], a[i], tail.coefficient(1, piece[i]));
    for (size_t i = 0; i < kCount; ++i) t[i] = hn::MulAdd(t[i], a[i], tail.coefficient(0, piece[i]));
    for (size_t i = 0; i < kCount; ++i) x[i] = hn::NegMulAdd(a[i], t[i], x[i]);
  }
  HWY_INLINE Slope<V> slope(D d, V x) const {
    const V a = bounded(d, x);
    const V t = tail.of(d, a), product = hn::Mul(a, t);
    const V angle_slope = hn::MulAdd(hn::Mul(a, a), hn::Set(d, 3 * kGeluCubic), hn::Set(d, kGeluLinear));
    const V falling = hn::NegMulAdd(hn::NegMulAdd(product, t, product), angle_slope, t);
    const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(x.raw));
    return {hn::Sub(at_least_zero(d, x), product),
            V{_mm512_mask_sub_ps(falling.raw, _knot_mask16(negative), _mm512_set1_ps(1), falling.raw)}};
  }

 private:
  /// |x| up to where the table ends; a NaN is not kept.
  static HWY_INLINE V magnitude(D d, V x) {
    return V{_mm512_maskz_range_ps(kAll, x.raw, hn::Set(d, Parabolas::kEnd).raw, 0b1010)};
  }
  static HWY_INLINE V at_least_zero(D, V x) { return V{_mm512_maskz_max_ps(kAll, _mm512_setzero_ps(), x.raw)}; }

  LookedUp<T> tail;
};
#endif

/// tanh(x) for what is rounded to T.
template <class T, class = void>
struct Tangent {
  template <class D, class V>
  HWY_INLINE V of(D d, V x) const {
    return tangent<T>(d, x);
  }
};
#if TRIREME_OPS_AVX512
template <class T>
struct Tangent<T, std::enable_if_t<kIsBfloat16<T>>> {
  HWY_INLINE Tangent() : ratio(tanh_ratio()) {}
  template <class D, class V>
  HWY_INLINE V of(D d, V x) const {
    const V a = bounded(d, x);
    return hn::CopySignToAbs(hn::Mul(a, ratio.of(d, a)), x);
  }
  LookedUp<T> ratio;
};
#endif

}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
