#include "trireme/ops/loss/cross_entropy_kernels.h"

#include <cmath>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/loss/cross_entropy_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd/loops-inl.h"
#include "trireme/ops/simd/math-inl.h"
#include "trireme/ops/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

constexpr int64_t kLogitsAhead = 4096;

/// What becomes of a logit before the softmax.
struct AsItIs {
  template <class D>
  HWY_INLINE hn::Vec<D> of(D, hn::Vec<D> x) const {
    return x;
  }
};

/// Not rounded to the logits' type: training and sampling then know the same probabilities.
template <class W>
struct Divided {
  W temperature;
  template <class D>
  HWY_INLINE hn::Vec<D> of(D d, hn::Vec<D> x) const {
    return hn::Div(x, hn::Set(d, temperature));
  }
};

/// Sum of exp(y - maximum), where y is what becomes of x.
template <class T, class Change = AsItIs>
HWY_INLINE Wide<T> sum_of_exponentials(const T* x, int64_t n, Wide<T> maximum, Change change = {}) {
  const WideTag<T> d;
  const Exponential<T> exponential(maximum);
  const auto add = [=](auto sum, auto v)
                       HWY_ATTR { return values(hn::Add(sum.v[0], exponential.of(d, change.of(d, v)))); };
  return sum_of<1>(d, {n, kLogitsAhead}, add, x)[0];
}

/// Sum of y.
template <class T, class Change>
HWY_INLINE Wide<T> sum_of_row(const T* x, int64_t n, Change change) {
  const WideTag<T> d;
  const auto add = [=](auto sum, auto v) HWY_ATTR { return values(hn::Add(sum.v[0], change.of(d, v))); };
  return sum_of<1>(d, {n, kLogitsAhead}, add, x)[0];
}

struct GradientOfRow {
  RowWeights weights;
  double softcap;
  int64_t target;  ///< outside 0 .. n - 1: none
};

/// x becomes softmax exp(y - maximum) / sum - target onehot(target) - uniform, times the slope of the cap where logits
/// are capped.
template <class T, class Change = AsItIs>
HWY_INLINE void to_gradient(T* x, int64_t n, Wide<T> maximum, Wide<T> sum, GradientOfRow row, Change change = {}) {
  using W = Wide<T>;
  const WideTag<T> d;
  const W scale = W(row.weights.softmax), factor = scale / sum, of_target = W(row.weights.target),
          uniform = W(row.weights.uniform);
  const ScaledExponential<T> probability(maximum, factor);
  const CapSlope<W> slope(row.softcap);
  const bool has_target = row.target >= 0 && row.target < n;
  const W target_logit = has_target ? widen(x[row.target]) : maximum;
  if (uniform != 0) {
    map(
        d, {n, kLogitsAhead}, outputs(x),
        [=](auto v) HWY_ATTR {
          return values(hn::Mul(hn::Sub(probability.of(d, change.of(d, v)), hn::Set(d, uniform)), slope.of(d, v)));
        },
        x);
  } else if (row.softcap == 0) {
    map(
        d, {n, kLogitsAhead}, outputs(x), [=](auto v) HWY_ATTR { return values(probability.of(d, change.of(d, v))); },
        x);
  } else {
    map(
        d, {n, kLogitsAhead}, outputs(x),
        [=](auto v) HWY_ATTR { return values(hn::Mul(probability.of(d, change.of(d, v)), slope.of(d, v))); }, x);
  }
  if (!has_target) return;
  // In the wide type: the target's gradient is rounded once, after the subtraction.
  const W e = hn::GetLane(Exponential<T>(maximum).of(d, change.of(d, hn::Set(d, target_logit))));
  x[row.target] = narrow<T>((e * factor - of_target - uniform) * slope.of(target_logit));
}

template <class T>
struct Softmax {
  static void rows(const SoftmaxLoss& args, int64_t first, int64_t last) {
    using W = Wide<T>;
    const int64_t n = args.vocabulary;
    for (int64_t t = first; t < last; ++t) {
      T* x = static_cast<T*>(args.logits) + t * n;
      const int64_t target = args.targets[t];
      if (target == kNotSupervised) {
        args.losses[t] = 0;
        if (args.gradient) std::memset(x, 0, n * sizeof(T));
        continue;
      }
      // The maximum may ignore a NaN: its exponential makes the sum NaN.
      const W maximum = row_maximum(x, n), target_logit = widen(x[target]);
      const W sum = sum_of_exponentials(x, n, maximum);
      args.losses[t] = std::log(static_cast<double>(sum)) + (static_cast<double>(maximum) - target_logit);
      if (args.gradient) to_gradient(x, n, maximum, sum, {{args.scale, args.scale, 0}, args.softcap, target});
    }
  }
};

template <class T>
struct ShardMax {
  static void rows(const VocabularyShard& args, int64_t first, int64_t last) {
    auto* row_max = static_cast<Wide<T>*>(args.row_max);
    for (int64_t t = first; t < last; ++t) {
      const T* x = static_cast<const T*>(args.logits) + t * args.width;
      row_max[t] = args.num_valid > 0 ? row_maximum(x, args.num_valid) / static_cast<Wide<T>>(args.temperature)
                                      : -std::numeric_limits<Wide<T>>::infinity();
    }
  }
};

template <class T>
struct ShardSum {
  static void rows(const VocabularyShard& args, int64_t first, int64_t last) {
    if (args.temperature == 1) return rows(args, first, last, AsItIs());
    rows(args, first, last, Divided<Wide<T>>{static_cast<Wide<T>>(args.temperature)});
  }

  template <class Change>
  static void rows(const VocabularyShard& args, int64_t first, int64_t last, Change change) {
    using W = Wide<T>;
    auto *sum_exp = static_cast<W*>(args.sum_exp), *target_logit = static_cast<W*>(args.target_logit);
    auto* logit_sum = static_cast<W*>(args.logit_sum);
    for (int64_t t = first; t < last; ++t) {
      const T* x = static_cast<const T*>(args.logits) + t * args.width;
      sum_exp[t] = target_logit[t] = 0;
      if (logit_sum != nullptr) logit_sum[t] = 0;
      if (args.targets[t] == kNotSupervised) continue;
      const int64_t target = args.targets[t] - args.first;
      if (target >= 0 && target < args.num_valid) target_logit[t] = widen(x[target]) / static_cast<W>(args.temperature);
      sum_exp[t] = sum_of_exponentials(x, args.num_valid, static_cast<const W*>(args.row_max)[t], change);
      if (logit_sum != nullptr) logit_sum[t] = sum_of_row(x, args.num_valid, change);
    }
  }
};

template <class T>
struct ShardGradient {
  static void rows(const VocabularyShard& args, int64_t first, int64_t last) {
    if (args.temperature == 1) return rows(args, first, last, AsItIs());
    rows(args, first, last, Divided<Wide<T>>{static_cast<Wide<T>>(args.temperature)});
  }

  template <class Change>
  static void rows(const VocabularyShard& args, int64_t first, int64_t last, Change change) {
    using W = Wide<T>;
    for (int64_t t = first; t < last; ++t) {
      T* x = static_cast<T*>(args.logits) + t * args.width;
      const int64_t valid = args.targets[t] == kNotSupervised ? 0 : args.num_valid;
      std::memset(x + valid, 0, (args.width - valid) * sizeof(T));
      if (valid == 0) continue;
      RowWeights weights = args.weights != nullptr ? args.weights[t] : RowWeights{args.scale, args.scale, 0};
      for (double* weight : {&weights.softmax, &weights.target, &weights.uniform}) *weight /= args.temperature;
      to_gradient(x, valid, static_cast<const W*>(args.row_max)[t], static_cast<const W*>(args.sum_exp)[t],
                  {weights, args.softcap, args.targets[t] - args.first}, change);
    }
  }
};

void softmax_loss(const SoftmaxLoss& a, int64_t first, int64_t last) { run<Softmax>(a, first, last); }
void shard_max(const VocabularyShard& a, int64_t first, int64_t last) { run<ShardMax>(a, first, last); }
void shard_sum(const VocabularyShard& a, int64_t first, int64_t last) { run<ShardSum>(a, first, last); }
void shard_gradient(const VocabularyShard& a, int64_t first, int64_t last) { run<ShardGradient>(a, first, last); }

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {

TRIREME_DISPATCH_ROWS(softmax_loss, SoftmaxLoss)
TRIREME_DISPATCH_ROWS(shard_max, VocabularyShard)
TRIREME_DISPATCH_ROWS(shard_sum, VocabularyShard)
TRIREME_DISPATCH_ROWS(shard_gradient, VocabularyShard)

}  // namespace trireme::ops
#endif  // HWY_ONCE
