// What every kernel needs on top of Highway: loads and stores that convert storage (double, float, bfloat16)
// to and from the arithmetic type, loops over a row with a tail, sums, maxima, and exp/sigmoid.
//
// Included once per instruction set (foreach_target). A tail goes through the same vector instructions as the
// body, padded with zeros: an element's bits do not depend on its place in the row.
// bfloat16 is rounded to nearest even here because Highway 1.0.3 truncates.
#if defined(TRIREME_OPS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_OPS_SIMD_INL_H_
#undef TRIREME_OPS_SIMD_INL_H_
#else
#define TRIREME_OPS_SIMD_INL_H_
#endif

#include <hwy/highway.h>
// math-inl.h needs highway.h first.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "trireme/ops/storage.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using WideTag = hn::ScalableTag<Wide<T>>;

/// How much of a vector an access covers.
struct Full {};
struct Part {
  size_t count;  ///< 1 .. lanes - 1
};

// ---- loads and stores ----
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* from, Full) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bfloat16* from, Full) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* from, Part part) {
  alignas(64) T padded[hn::MaxLanes(D())] = {};
  std::memcpy(padded, from, part.count * sizeof(T));
  return load(d, padded, Full{});
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, hn::TFromD<D>* to, Full) {
  hn::StoreU(value, d, to);
}

/// Rounds to nearest even; a NaN stays one.
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, bfloat16* to, Full) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::BitCast(d32, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFF))));
  const auto quiet_nan = hn::Or(upper, hn::Set(d32, 0x40));
  const auto result = hn::IfThenElse(hn::RebindMask(d32, hn::Ne(value, value)), quiet_nan, rounded);
  hn::StoreU(hn::TruncateTo(d16, result), d16, reinterpret_cast<uint16_t*>(to));
}

template <class D, class T>
HWY_INLINE void store(D d, hn::Vec<D> value, T* to, Part part) {
  alignas(64) T padded[hn::MaxLanes(D())];
  store(d, value, padded, Full{});
  std::memcpy(to, padded, part.count * sizeof(T));
}

// ---- loops over a row ----
/// body(i, Full{}) for each whole vector of n elements, then body(i, Part{rest}).
template <class D, class Body>
HWY_INLINE void each_vector(D d, int64_t n, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, Full{});
  if (i < n) body(i, Part{static_cast<size_t>(n - i)});
}

/// Sum over n elements of term(i, Full{} or Part{}), in an order that depends on n alone.
template <class D, class Term>
HWY_INLINE hn::TFromD<D> sum_over(D d, int64_t n, const Term& term) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, term(i, Full{}));
    s1 = hn::Add(s1, term(i + lanes, Full{}));
    s2 = hn::Add(s2, term(i + 2 * lanes, Full{}));
    s3 = hn::Add(s3, term(i + 3 * lanes, Full{}));
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::Add(s0, term(i, Full{}));
  if (i < n) {
    const Part rest{static_cast<size_t>(n - i)};
    s1 = hn::Add(s1, hn::IfThenElseZero(hn::FirstN(d, rest.count), term(i, rest)));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

/// The largest of n >= 1 elements. A NaN need not show.
template <class T, class D = WideTag<T>>
HWY_INLINE Wide<T> row_maximum(const T* x, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Wide<T> largest = widen(x[0]);
  if (n >= lanes) {
    auto m0 = load(d, x, Full{}), m1 = m0;
    int64_t i = lanes;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      m0 = hn::Max(m0, load(d, x + i, Full{}));
      m1 = hn::Max(m1, load(d, x + i + lanes, Full{}));
    }
    if (i + lanes <= n) m0 = hn::Max(m0, load(d, x + i, Full{}));
    // The last vector may overlap what has been seen: a maximum does not mind.
    m1 = hn::Max(m1, load(d, x + n - lanes, Full{}));
    largest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
  } else {
    for (int64_t i = 1; i < n; ++i) largest = std::max(largest, widen(x[i]));
  }
  return largest;
}

// ---- functions ----
/// e^x for x <= 0, within 2 ulp; 0 below the smallest normal result; NaN stays NaN.
template <class D, hwy::EnableIf<sizeof(hn::TFromD<D>) == 4>* = nullptr>
HWY_INLINE hn::Vec<D> exponential(D d, hn::Vec<D> x) {
  // x = n ln 2 + r. Adding 1.5 * 2^23 rounds x / ln 2 to the integer n and leaves it in the low bits, with 127 on
  // top: shifted up, they are the bits of 2^n. Constants and polynomial of |r| <= ln(2)/2 are those of Cephes' expf.
  const auto magic = hn::Set(d, 12582912.0f + 127.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const auto n = hn::Sub(shifted, magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  auto p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const hn::RebindToSigned<D> d32;
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(d32, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Mul(p, power));
}

template <class D, hwy::EnableIf<sizeof(hn::TFromD<D>) == 8>* = nullptr>
HWY_INLINE hn::Vec<D> exponential(D d, hn::Vec<D> x) {
  return hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, x), x);
}

template <class V>
struct Sigmoid {
  V value;       ///< 1 / (1 + e^-x)
  V complement;  ///< 1 - value, without cancellation
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE Sigmoid<V> sigmoid(D d, V x) {
  const V e = exponential(d, hn::Neg(hn::Abs(x)));  // in [0, 1]: cannot overflow
  const V large = hn::Div(hn::Set(d, 1), hn::Add(hn::Set(d, 1), e));
  const V small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, hn::Zero(d));
  return {hn::IfThenElse(negative, small, large), hn::IfThenElse(negative, large, small)};
}

/// Kernel<T>::rows(arguments, first, last) for the storage type that arguments.dtype names.
template <template <class> class Kernel, class Arguments>
HWY_INLINE void run(const Arguments& arguments, int64_t first, int64_t last) {
  switch (arguments.dtype) {
    case Storage::kFloat64:
      return Kernel<double>::rows(arguments, first, last);
    case Storage::kFloat32:
      return Kernel<float>::rows(arguments, first, last);
    case Storage::kBfloat16:
      return Kernel<bfloat16>::rows(arguments, first, last);
  }
}

}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
