// exp, sigmoid and tanh of vectors. The storage type T of the results sets the accuracy: within 2 ulp for float32 and
// float64. For bfloat16, whose rounding alone is 2e-3, exponentials are within 3.4e-6 (their sums are kept in float32)
// and sigmoids within 2e-4. Included once per instruction set, like simd-inl.h.
#if defined(TRIREME_OPS_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_OPS_SIMD_MATH_INL_H_
#undef TRIREME_OPS_SIMD_MATH_INL_H_
#else
#define TRIREME_OPS_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>
// math-inl.h needs highway.h first.
#include <hwy/contrib/math/math-inl.h>

#include "trireme/ops/simd/simd-inl.h"
#include "trireme/ops/storage.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {

/// c0 + c1 x + c2 x^2 + ...
template <class D, class... Rest>
HWY_INLINE hn::Vec<D> polynomial(D d, hn::Vec<D> x, float c0, Rest... rest) {
  if constexpr (sizeof...(rest) == 0)
    return hn::Set(d, c0);
  else
    return hn::MulAdd(polynomial(d, x, rest...), x, hn::Set(d, c0));
}

#if TRIREME_OPS_AVX512
// 2^z = 2^floor(z) 2^f. One instruction computes f, another multiplies by 2^floor(z). Both accept any z, also infinity
// and NaN. A polynomial approximates 2^f on [0, 1) with the least relative error, and is exact at both ends.
constexpr __mmask16 kAll = 0xFFFF;  // all lanes; GCC 12 warns about intrinsics without a mask
template <class D, class V = hn::Vec<D>>
HWY_INLINE V fraction(D, V z) {
  return V{_mm512_maskz_reduce_ps(kAll, z.raw, 1)};
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V scaled(D, V p, V z) {
  return V{_mm512_maskz_scalef_ps(kAll, p.raw, z.raw)};
}
/// factor * 2^z within 1.1e-4. The factor costs nothing, because the coefficients contain it.
constexpr float kExp2Coarse[] = {1, 0.6954243f, 0.22630768f, 0.07826797f};
template <class D>
HWY_INLINE hn::Vec<D> exp2_coarse(D d, hn::Vec<D> z, float factor = 1) {
  const auto p =
      polynomial(d, fraction(d, z), factor, factor * kExp2Coarse[1], factor * kExp2Coarse[2], factor * kExp2Coarse[3]);
  return scaled(d, p, z);
}
/// 2^z within 3.4e-6.
template <class D>
HWY_INLINE hn::Vec<D> exp2_fine(D d, hn::Vec<D> z) {
  return scaled(d, polynomial(d, fraction(d, z), 1.0f, 0.69303215f, 0.24137977f, 0.05203237f, 0.01355575f), z);
}
#endif

constexpr float kLog2E = 1.44269504f;

/// e^x as 2^n p(r), where x = n ln 2 + r and |r| <= ln(2)/2. Adding 1.5 * 2^23 + 127 rounds x / ln 2 to the integer n,
/// and leaves n + 127 in the low bits of the sum. Shifted left by 23, they are the bits of 2^n.
template <class D, class P>
HWY_INLINE hn::Vec<D> by_parts(D d, hn::Vec<D> x, const P& p) {
  const auto magic = hn::Set(d, 12582912.0f + 127.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, kLog2E), magic);
  const auto n = hn::Sub(shifted, magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  const hn::RebindToSigned<D> d32;
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(d32, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Mul(p(r), power));
}

/// e^x for x <= 0. Results below the smallest normal number are 0. NaN stays NaN. T is the type in which the result, or
/// a sum of results, is finally stored.
template <class T, class D>
HWY_INLINE hn::Vec<D> exponential(D d, hn::Vec<D> x) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const auto number = hn::Eq(x, x);  // Highway makes whole numbers of x, which NaN and huge x have none of
    return hn::IfThenElse(number, hn::Exp(d, hn::Max(hn::IfThenElseZero(number, x), hn::Set(d, -1000.0))), x);
  } else if constexpr (kIsBfloat16<T>) {
#if TRIREME_OPS_AVX512
    return exp2_fine(d, hn::Mul(x, hn::Set(d, kLog2E)));
#else
    return by_parts(d, x, [=](auto r) HWY_ATTR {
      return polynomial(d, r, 1.0f, 0.99996686f, 0.50003016f, 0.16787474f, 0.04151385f);
    });
#endif
  } else {
    // The polynomial is that of Cephes' expf.
    return by_parts(d, x, [=](auto r) HWY_ATTR {
      const auto p = polynomial(d, r, 5.0000001201e-1f, 1.6666665459e-1f, 4.1665795894e-2f, 8.3334519073e-3f,
                                1.3981999507e-3f, 1.9875691500e-4f);
      return hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
    });
  }
}

/// e^(x - shift) for x up to about shift. For bfloat16 with AVX-512, one multiply-add subtracts and scales. All
/// exponentials of one shift are then wrong by the same factor, up to 1 + 4e-8 |shift|.
template <class T>
struct Exponential {
  static constexpr bool kFused = kIsBfloat16<T> && TRIREME_OPS_AVX512;

  explicit Exponential(Wide<T> shift) : subtracted(kFused ? shift * kLog2E : shift) {}
  Wide<T> subtracted;

  template <class D>
  HWY_INLINE hn::Vec<D> exponent(D d, hn::Vec<D> x) const {
    if constexpr (kFused) return hn::MulSub(x, hn::Set(d, kLog2E), hn::Set(d, subtracted));
    return hn::Sub(x, hn::Set(d, subtracted));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> of(D d, hn::Vec<D> x) const {
#if TRIREME_OPS_AVX512
    if constexpr (kFused) return exp2_fine(d, exponent(d, x));
#endif
    return exponential<T>(d, exponent(d, x));
  }
};

/// factor * e^(x - shift). Do not sum the results: those stored as bfloat16 are only within 1.1e-4.
template <class T>
struct ScaledExponential {
  ScaledExponential(Wide<T> shift, Wide<T> factor_) : unscaled(shift), factor(factor_) {}
  Exponential<T> unscaled;
  Wide<T> factor;

  template <class D>
  HWY_INLINE hn::Vec<D> of(D d, hn::Vec<D> x) const {
#if TRIREME_OPS_AVX512
    if constexpr (Exponential<T>::kFused) return exp2_coarse(d, unscaled.exponent(d, x), factor);
#endif
    return hn::Mul(unscaled.of(d, x), hn::Set(d, factor));
  }
};

template <class V>
struct Sigmoid {
  V value;  ///< s = 1 / (1 + e^-x)
  V complement;  ///< 1 - s, without cancellation except for bfloat16 with AVX-512: off by up to 6e-5, 0 where s is 1
};

/// 1 / x for x in [1, 2].
template <class T, class D>
HWY_INLINE hn::Vec<D> reciprocal(D d, hn::Vec<D> x) {
  if constexpr (sizeof(hn::TFromD<D>) == 8 || (!kIsBfloat16<T> && !TRIREME_OPS_AVX512)) {
    return hn::Div(hn::Set(d, 1), x);
  } else {
#if TRIREME_OPS_AVX512
    const hn::Vec<D> estimate{_mm512_maskz_rcp14_ps(kAll, x.raw)};
    if constexpr (kIsBfloat16<T>) return estimate;
#else
    const auto estimate = hn::ApproximateReciprocal(x);
#endif
    return hn::MulAdd(estimate, hn::NegMulAdd(estimate, x, hn::Set(d, 1)), estimate);
  }
}

/// sigmoid(x) is sigmoid_of(x * kSigmoidScale<T>).
template <class T>
constexpr double kSigmoidScale = kIsBfloat16<T> && TRIREME_OPS_AVX512 ? -double{kLog2E} : 1;

template <class T, class D, class V = hn::Vec<D>>
HWY_INLINE Sigmoid<V> sigmoid_of(D d, V x) {
#if TRIREME_OPS_AVX512
  if constexpr (kIsBfloat16<T>) {
    // Infinite e^-x needs no special case: its reciprocal is 0. The complement is accurate enough: where it is small,
    // it is added to a value near 1.
    const V value{_mm512_maskz_rcp14_ps(kAll, hn::Add(exp2_coarse(d, x), hn::Set(d, 1)).raw)};
    return {value, hn::Sub(hn::Set(d, 1), value)};
  }
#endif
  const V e = exponential<T>(d, hn::Neg(hn::Abs(x)));  // in [0, 1]: cannot overflow
  const V large = reciprocal<T>(d, hn::Add(hn::Set(d, 1), e));
  const V small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, hn::Zero(d));
  return {hn::IfThenElse(negative, small, large), hn::IfThenElse(negative, large, small)};
}

template <class T, class D, class V = hn::Vec<D>>
HWY_INLINE Sigmoid<V> sigmoid(D d, V x) {
  if constexpr (kSigmoidScale<T> == 1) return sigmoid_of<T>(d, x);
  return sigmoid_of<T>(d, hn::Mul(x, hn::Set(d, kSigmoidScale<T>)));
}

#if TRIREME_OPS_AVX512
/// Replaces each x[k] by sigmoid_of(x[k]).value for bfloat16. Every step is done for all k before the next step, so the
/// processor can do more at once (Zen 4: a tenth faster).
template <class D, class V, size_t kCount>
HWY_INLINE void sigmoids_of(D d, V (&x)[kCount]) {
  V f[kCount], p[kCount];
  for (size_t k = 0; k < kCount; ++k) f[k] = fraction(d, x[k]);
  for (size_t k = 0; k < kCount; ++k) p[k] = hn::MulAdd(hn::Set(d, kExp2Coarse[3]), f[k], hn::Set(d, kExp2Coarse[2]));
  for (size_t k = 0; k < kCount; ++k) p[k] = hn::MulAdd(p[k], f[k], hn::Set(d, kExp2Coarse[1]));
  for (size_t k = 0; k < kCount; ++k) p[k] = hn::MulAdd(p[k], f[k], hn::Set(d, kExp2Coarse[0]));
  for (size_t k = 0; k < kCount; ++k) p[k] = scaled(d, p[k], x[k]);
  for (size_t k = 0; k < kCount; ++k) p[k] = hn::Add(p[k], hn::Set(d, 1));
  for (size_t k = 0; k < kCount; ++k) x[k] = V{_mm512_maskz_rcp14_ps(kAll, p[k].raw)};
}
#endif

/// tanh(x), as accurate for small x as for large x. In float32, |tanh(x)| is -e / (2 + e), where e = 2^y - 1 and
/// y = -2 |x| / ln 2. attention/math-inl.h has the same algorithm without Highway.
template <class T, class D>
HWY_INLINE hn::Vec<D> tangent(D d, hn::Vec<D> x) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const auto number = hn::Eq(x, x);
    const auto most = hn::Set(d, 30.0);  // of which tanh is 1
    const auto bounded = hn::Max(hn::Min(hn::IfThenElseZero(number, x), most), hn::Neg(most));
    return hn::IfThenElse(number, hn::Tanh(d, bounded), x);
  } else {
    const hn::RebindToSigned<D> d32;
    const auto magic = hn::Set(d, 12582912.0f), least = hn::Set(d, -64.0f), one = hn::Set(d, 1);
    const auto unbounded = hn::Mul(hn::Abs(x), hn::Set(d, -2 * kLog2E));
    const auto y = hn::IfThenElse(hn::Lt(unbounded, least), least, unbounded);  // NaN stays NaN
    const auto shifted = hn::Add(y, magic);  // magic is 1.5 * 2^23: the low bits now hold n, and y = n + f
    const auto f = hn::Sub(y, hn::Sub(shifted, magic));
    // Minimax polynomial of (2^f - 1) / f on [-1/2, 1/2].
    const auto q = polynomial(d, f, 6.93147188e-1f, 2.40226498e-1f, 5.55035743e-2f, 9.61823750e-3f, 1.33907355e-3f,
                              1.54035123e-4f);
    const auto n = hn::ShiftLeft<23>(hn::BitCast(d32, shifted));
    const auto power = hn::BitCast(d, hn::Add(n, hn::BitCast(d32, one)));
    const auto e = hn::MulAdd(power, hn::Mul(f, q), hn::Sub(power, one));
    return hn::CopySign(hn::Mul(e, reciprocal<float>(d, hn::Add(hn::Set(d, 2), e))), x);
  }
}

/// dy/dx of a capped logit y = cap tanh(x / cap), computed from y: 1 - (y / cap)^2. It turns the gradient of y into
/// the gradient of x. cap 0 means that there is no cap; the derivative is then 1.
template <class W>
struct CapSlope {
  explicit CapSlope(double cap) : inverse(cap == 0 ? 0 : 1 / cap) {}
  W inverse;

  // A value at its cap can round to one beyond it, where the slope is 0, too.
  W of(W y) const { return inverse == 0 ? 1 : std::max(W(0), 1 - y * inverse * (y * inverse)); }
  template <class D>
  HWY_INLINE hn::Vec<D> of(D d, hn::Vec<D> y) const {
    const auto part = hn::Mul(y, hn::Set(d, inverse));
    return hn::Max(hn::Zero(d), hn::NegMulAdd(part, part, hn::Set(d, 1)));
  }
};

}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
