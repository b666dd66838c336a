// What softmax cross-entropy does to a row of logits, shared by the kernels for a whole and for a cut vocabulary.
// Included once per instruction set, as simd-inl.h.
#if defined(TRIREME_OPS_CROSS_ENTROPY_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_OPS_CROSS_ENTROPY_ROWS_INL_H_
#undef TRIREME_OPS_CROSS_ENTROPY_ROWS_INL_H_
#else
#define TRIREME_OPS_CROSS_ENTROPY_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include "trireme/ops/simd-inl.h"
#include "trireme/ops/simd_loops-inl.h"
#include "trireme/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {

constexpr int64_t kLogitsAhead = 4096;

/// Sum of exp(x - maximum).
template <class T>
HWY_INLINE Wide<T> sum_of_exponentials(const T* x, int64_t n, Wide<T> maximum) {
  const WideTag<T> d;
  const Exponential<T> exponential(maximum);
  const auto add = [=](auto sum, auto v) HWY_ATTR { return values(hn::Add(sum.v[0], exponential.of(d, v))); };
  return sum_of<1>(d, {n, kLogitsAhead}, add, x)[0];
}

struct GradientOfRow {
  double scale, softcap;
  int64_t target;  ///< outside 0 .. n - 1: none
};

/// x becomes scale (exp(x - maximum) / sum - onehot(target)), times the slope of the cap where logits are capped.
template <class T>
HWY_INLINE void to_gradient(T* x, int64_t n, Wide<T> maximum, Wide<T> sum, GradientOfRow row) {
  using W = Wide<T>;
  const WideTag<T> d;
  const W scale = W(row.scale), factor = scale / sum;
  const ScaledExponential<T> probability(maximum, factor);
  const CapSlope<W> slope(row.softcap);
  const bool has_target = row.target >= 0 && row.target < n;
  const W target_logit = has_target ? widen(x[row.target]) : maximum;
  if (row.softcap == 0) {
    map(d, {n, kLogitsAhead}, outputs(x), [=](auto v) HWY_ATTR { return values(probability.of(d, v)); }, x);
  } else {
    map(
        d, {n, kLogitsAhead}, outputs(x),
        [=](auto v) HWY_ATTR { return values(hn::Mul(probability.of(d, v), slope.of(d, v))); }, x);
  }
  if (!has_target) return;
  // In the wide type: the target's gradient is rounded once, after the subtraction.
  const W e = hn::GetLane(Exponential<T>(maximum).of(d, hn::Set(d, target_logit)));
  x[row.target] = narrow<T>((e * factor - scale) * slope.of(target_logit));
}

}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
