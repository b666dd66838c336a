#include "trireme/ops/cross_entropy_kernels.h"

#include <cmath>
#include <type_traits>

#include "trireme/ops/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/cross_entropy_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd-inl.h"
#include "trireme/ops/simd_loops-inl.h"
#include "trireme/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

template <class T>
struct Softmax {
  static void rows(const SoftmaxLoss& args, int64_t first, int64_t last) {
    using W = Wide<T>;
    const WideTag<T> d;
    const int64_t n = args.vocabulary;
    for (int64_t t = first; t < last; ++t) {
      T* x = static_cast<T*>(args.logits) + t * n;
      const int64_t target = args.targets[t];
      if (target == kNotSupervised) {
        args.losses[t] = 0;
        if (args.gradient) std::memset(x, 0, n * sizeof(T));
        continue;
      }
      // Exponentials are kept for the gradient, in the row itself where its type is wide enough. A NaN need not
      // show in the maximum: its exponential makes the sum NaN.
      struct Kept;
      W* kept = nullptr;
      if constexpr (std::is_same_v<T, W>) kept = x;
      // With capped logits these are needed beside their exponentials.
      if (!std::is_same_v<T, W> || args.softcap != 0) kept = thread_scratch<Kept, W>(n);
      const W maximum = row_maximum(x, n), target_logit = widen(x[target]);
      const auto v_maximum = hn::Set(d, maximum);
      const auto e_of = [=](auto v) HWY_ATTR { return values(exponential<T>(d, hn::Sub(v, v_maximum))); };
      const W sum = args.gradient ? sum_of(d, n, outputs(kept), e_of, x)[0] : sum_of(d, n, e_of, x)[0];
      args.losses[t] = std::log(static_cast<double>(sum)) + (static_cast<double>(maximum) - target_logit);
      if (!args.gradient) continue;

      const W factor = W(args.scale) / sum;
      const auto v_factor = hn::Set(d, factor);
      const CapSlope<W> slope(args.softcap);
      if (args.softcap == 0) {
        map(d, n, outputs(x), [=](auto e) HWY_ATTR { return values(hn::Mul(e, v_factor)); }, kept);
      } else {
        map(
            d, n, outputs(x),
            [=](auto e, auto v) HWY_ATTR { return values(hn::Mul(hn::Mul(e, v_factor), slope.of(d, v))); }, kept, x);
      }
      // Once more in the wide type: the target's gradient is rounded once, after the subtraction.
      const W at_target = hn::GetLane(exponential<T>(d, hn::Set(d, target_logit - maximum)));
      x[target] = narrow<T>((at_target * factor - W(args.scale)) * slope.of(target_logit));
    }
  }
};

template <class T>
struct AccumulateKernel {
  static void rows(const AccumulateArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    for (int64_t t = first; t < last; ++t) {
      auto* sum = static_cast<Wide<T>*>(args.sum) + t * args.width;
      const T* x = static_cast<const T*>(args.x) + t * args.width;
      const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
      int64_t i = 0;  // vector by vector: sums lie in natural order
      for (; i + lanes <= args.width; i += lanes)
        store(d, hn::Add(load(d, sum + i, Full{}), load(d, x + i, Full{})), sum + i, Full{});
      if (i == args.width) continue;
      const Part rest{static_cast<size_t>(args.width - i)};
      store(d, hn::Add(load(d, sum + i, rest), load(d, x + i, rest)), sum + i, rest);
    }
  }
};

void softmax_loss(const SoftmaxLoss& a, int64_t first, int64_t last) { run<Softmax>(a, first, last); }
void accumulate(const AccumulateArguments& a, int64_t first, int64_t last) { run<AccumulateKernel>(a, first, last); }

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {

HWY_EXPORT(softmax_loss);
HWY_EXPORT(accumulate);

void softmax_loss_rows(const SoftmaxLoss& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(softmax_loss)(a, first, last);
}
void accumulate_rows(const AccumulateArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(accumulate)(a, first, last);
}

}  // namespace trireme::ops
#endif  // HWY_ONCE
