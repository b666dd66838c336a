// SiLU, GELU and the hyperbolic tangent of vectors, and their derivatives. bfloat16 with AVX-512 uses coarse
// exponentials and parabolas (parabolas.h); everything else uses exponentials. Included once per instruction set, as
// simd-inl.h.
#if defined(TRIREME_OPS_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_OPS_ACTIVATIONS_INL_H_
#undef TRIREME_OPS_ACTIVATIONS_INL_H_
#else
#define TRIREME_OPS_ACTIVATIONS_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "trireme/ops/elementwise/parabolas.h"
#include "trireme/ops/simd/math-inl.h"
#include "trireme/ops/simd/simd-inl.h"

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
  template <class D, class V, size_t kCount>
  HWY_INLINE void values(D d, V (&x)[kCount]) const {
    if constexpr (kIsBfloat16<T> && TRIREME_OPS_AVX512) {
#if TRIREME_OPS_AVX512
      V s[kCount];
      for (size_t k = 0; k < kCount; ++k) s[k] = hn::Mul(x[k], hn::Set(d, kSigmoidScale<T>));
      sigmoids_of(d, s);
      for (size_t k = 0; k < kCount; ++k) x[k] = hn::Mul(x[k], s[k]);
#endif
    } else {
      for (V& v : x) v = value(d, v);
    }
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
/// The function of a / unit whose parabolas (parabolas.h) are in `table`.
template <class T>
struct LookedUp {
  using D = WideTag<T>;
  using V = hn::Vec<D>;

  explicit HWY_INLINE LookedUp(const Parabolas& table, float unit = 1)
      : end(hn::Set(D(), Parabolas::kEnd * unit)), pieces(hn::Set(D(), Parabolas::kPiecesPerUnit / unit)) {
    const float* from[] = {table.constant, table.linear, table.square};
    V factor = hn::Set(D(), 1);
    for (int k = 0; k < 3; ++k, factor = hn::Mul(factor, hn::Set(D(), 1 / unit))) {
      low[k] = hn::Mul(factor, hn::Load(D(), from[k]));
      high[k] = hn::Mul(factor, hn::Load(D(), from[k] + hn::MaxLanes(D())));
    }
  }

  /// |x|, at most the end of the parabolas; NaN stays NaN.
  HWY_INLINE V bounded(D, V x) const {
    return V{_mm512_maskz_min_ps(kAll, end.raw, hn::Abs(x).raw)};  // the second where one is NaN
  }
  /// The function at `a`, a result of bounded().
  HWY_INLINE V of(D d, V a) const {
    const V piece = piece_of(d, a);
    return hn::MulAdd(hn::MulAdd(coefficient(2, piece), a, coefficient(1, piece)), a, coefficient(0, piece));
  }
  /// of() for each a[i]. Each step is done for all of them before the next step, so the processor finds more to do at
  /// once (Zen 4: a tenth faster).
  template <size_t kCount>
  HWY_INLINE void all_of(D d, const V (&a)[kCount], V (&result)[kCount]) const {
    V piece[kCount];
    for (size_t i = 0; i < kCount; ++i) piece[i] = piece_of(d, a[i]);
    for (size_t i = 0; i < kCount; ++i) result[i] = coefficient(2, piece[i]);
    for (size_t i = 0; i < kCount; ++i) result[i] = hn::MulAdd(result[i], a[i], coefficient(1, piece[i]));
    for (size_t i = 0; i < kCount; ++i) result[i] = hn::MulAdd(result[i], a[i], coefficient(0, piece[i]));
  }
  /// Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  HWY_INLINE V piece_of(D d, V a) const { return hn::MulAdd(a, pieces, hn::Set(d, 12582912.0f)); }
  HWY_INLINE V coefficient(int k, V piece) const {
    return V{_mm512_permutex2var_ps(low[k].raw, _mm512_castps_si512(piece.raw), high[k].raw)};
  }
  V end, pieces, low[3], high[3];
};

/// GELU by parabolas.h. For x <= 0 the derivative is t - a t (1 - t) z'(a); for x > 0 it is 1 minus the derivative at
/// -x.
template <class T>
struct Gelu<T, std::enable_if_t<kIsBfloat16<T>>> {
  using D = WideTag<T>;
  using V = hn::Vec<D>;

  HWY_INLINE Gelu() : tail(gelu_tail()) {}

  HWY_INLINE V value(D d, V x) const {
    const V a = magnitude(d, x);
    return hn::NegMulAdd(a, tail.of(d, a), at_least_zero(d, x));
  }
  /// value() of each.
  template <size_t kCount>
  HWY_INLINE void values(D d, V (&x)[kCount]) const {
    V a[kCount], t[kCount];
    for (size_t i = 0; i < kCount; ++i) a[i] = magnitude(d, x[i]);
    for (size_t i = 0; i < kCount; ++i) x[i] = at_least_zero(d, x[i]);
    tail.all_of(d, a, t);
    for (size_t i = 0; i < kCount; ++i) x[i] = hn::NegMulAdd(a[i], t[i], x[i]);
  }
  HWY_INLINE Slope<V> slope(D d, V x) const {
    const V a = tail.bounded(d, x);
    const V t = tail.of(d, a), product = hn::Mul(a, t);
    const V angle_slope = hn::MulAdd(hn::Mul(a, a), hn::Set(d, 3 * kGeluCubic), hn::Set(d, kGeluLinear));
    const V falling = hn::NegMulAdd(hn::NegMulAdd(product, t, product), angle_slope, t);
    const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(x.raw));
    return {hn::Sub(at_least_zero(d, x), product),
            V{_mm512_mask_sub_ps(falling.raw, _knot_mask16(negative), _mm512_set1_ps(1), falling.raw)}};
  }

 private:
  /// |x|, at most the end of the table; NaN is not kept.
  static HWY_INLINE V magnitude(D d, V x) {
    return V{_mm512_maskz_range_ps(kAll, x.raw, hn::Set(d, Parabolas::kEnd).raw, 0b1010)};
  }
  static HWY_INLINE V at_least_zero(D, V x) { return V{_mm512_maskz_max_ps(kAll, _mm512_setzero_ps(), x.raw)}; }

  LookedUp<T> tail;
};
#endif

/// cap tanh(x / cap) for results that are rounded to T.
template <class T, class = void>
struct Capped {
  explicit HWY_INLINE Capped(double cap_) : cap(hn::Set(D(), W(cap_))), inverse(hn::Set(D(), W(1 / cap_))) {}
  template <class V, size_t kCount>
  HWY_INLINE void values(V (&x)[kCount]) const {
    for (V& v : x) v = hn::Mul(cap, tangent<T>(D(), hn::Mul(v, inverse)));
  }

 private:
  using W = Wide<T>;
  using D = WideTag<T>;
  hn::Vec<D> cap, inverse;
};
#if TRIREME_OPS_AVX512
/// The parabolas' coefficients contain cap, so they take |x| instead of |x| / cap. cap is at least 1e-18.
template <class T>
struct Capped<T, std::enable_if_t<kIsBfloat16<T>>> {
  using D = WideTag<T>;
  using V = hn::Vec<D>;
  explicit HWY_INLINE Capped(double cap) : ratio(tanh_ratio(), static_cast<float>(cap)) {}
  template <size_t kCount>
  HWY_INLINE void values(V (&x)[kCount]) const {
    V a[kCount], h[kCount];
    for (size_t i = 0; i < kCount; ++i) a[i] = ratio.bounded(D(), x[i]);
    ratio.all_of(D(), a, h);
    for (size_t i = 0; i < kCount; ++i) x[i] = hn::CopySignToAbs(hn::Mul(a[i], h[i]), x[i]);
  }
  LookedUp<T> ratio;
};
#endif

}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
