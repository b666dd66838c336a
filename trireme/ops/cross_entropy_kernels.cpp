#include "trireme/ops/cross_entropy_kernels.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/cross_entropy_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/cross_entropy_rows-inl.h"
#include "trireme/ops/simd-inl.h"
#include "trireme/ops/simd_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

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
      // A NaN need not show in the maximum: its exponential makes the sum NaN.
      const W maximum = row_maximum(x, n), target_logit = widen(x[target]);
      const W sum = sum_of_exponentials(x, n, maximum);
      args.losses[t] = std::log(static_cast<double>(sum)) + (static_cast<double>(maximum) - target_logit);
      if (args.gradient) to_gradient(x, n, maximum, sum, {args.scale, args.softcap, target});
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
