#include "trireme/ops/cross_entropy_shard_kernels.h"

#include <cstring>
#include <limits>

#include "trireme/ops/cross_entropy_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/cross_entropy_shard_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd-inl.h"
#include "trireme/ops/simd_loops-inl.h"
#include "trireme/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

constexpr int64_t kAhead = 4096;

template <class T>
struct ShardMax {
  static void rows(const VocabularyShard& args, int64_t first, int64_t last) {
    auto* row_max = static_cast<Wide<T>*>(args.row_max);
    for (int64_t t = first; t < last; ++t) {
      const T* x = static_cast<const T*>(args.logits) + t * args.width;
      row_max[t] = args.num_valid > 0 ? row_maximum(x, args.num_valid) : -std::numeric_limits<Wide<T>>::infinity();
    }
  }
};

template <class T>
struct ShardSum {
  static void rows(const VocabularyShard& args, int64_t first, int64_t last) {
    using W = Wide<T>;
    const WideTag<T> d;
    auto *sum_exp = static_cast<W*>(args.sum_exp), *target_logit = static_cast<W*>(args.target_logit);
    for (int64_t t = first; t < last; ++t) {
      const T* x = static_cast<const T*>(args.logits) + t * args.width;
      sum_exp[t] = target_logit[t] = 0;
      if (args.targets[t] == kNotSupervised) continue;
      const int64_t target = args.targets[t] - args.first;
      if (target >= 0 && target < args.num_valid) target_logit[t] = widen(x[target]);
      const auto maximum = hn::Set(d, static_cast<const W*>(args.row_max)[t]);
      sum_exp[t] = sum_of(
          d, {args.num_valid, kAhead}, [=](auto v) HWY_ATTR { return values(exponential<T>(d, hn::Sub(v, maximum))); },
          x)[0];
    }
  }
};

template <class T>
struct ShardGradient {
  static void rows(const VocabularyShard& args, int64_t first, int64_t last) {
    using W = Wide<T>;
    const WideTag<T> d;
    for (int64_t t = first; t < last; ++t) {
      T* x = static_cast<T*>(args.logits) + t * args.width;
      const int64_t valid = args.targets[t] == kNotSupervised ? 0 : args.num_valid;
      std::memset(x + valid, 0, (args.width - valid) * sizeof(T));
      if (valid == 0) continue;
      const W maximum = static_cast<const W*>(args.row_max)[t];
      const W factor = W(args.scale) / static_cast<const W*>(args.sum_exp)[t];
      const auto v_maximum = hn::Set(d, maximum), v_factor = hn::Set(d, factor);
      const int64_t target = args.targets[t] - args.first;
      const bool holds_target = target >= 0 && target < valid;
      // In the wide type: the target's gradient is rounded once, after the subtraction.
      const W target_logit = holds_target ? widen(x[target]) : maximum;
      const CapSlope<W> slope(args.softcap);
      const auto gradient = [=](auto v)
                                HWY_ATTR { return hn::Mul(exponential<T>(d, hn::Sub(v, v_maximum)), v_factor); };
      if (args.softcap == 0) {
        map(d, {valid, kAhead}, outputs(x), [=](auto v) HWY_ATTR { return values(gradient(v)); }, x);
      } else {
        map(d, valid, outputs(x), [=](auto v) HWY_ATTR { return values(hn::Mul(gradient(v), slope.of(d, v))); }, x);
      }
      if (!holds_target) continue;
      const W e = hn::GetLane(exponential<T>(d, hn::Sub(hn::Set(d, target_logit), v_maximum)));
      x[target] = narrow<T>((e * factor - W(args.scale)) * slope.of(target_logit));
    }
  }
};

void shard_max(const VocabularyShard& a, int64_t first, int64_t last) { run<ShardMax>(a, first, last); }
void shard_sum(const VocabularyShard& a, int64_t first, int64_t last) { run<ShardSum>(a, first, last); }
void shard_gradient(const VocabularyShard& a, int64_t first, int64_t last) { run<ShardGradient>(a, first, last); }

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {

HWY_EXPORT(shard_max);
HWY_EXPORT(shard_sum);
HWY_EXPORT(shard_gradient);

void shard_max_rows(const VocabularyShard& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(shard_max)(a, first, last);
}
void shard_sum_rows(const VocabularyShard& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(shard_sum)(a, first, last);
}
void shard_gradient_rows(const VocabularyShard& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(shard_gradient)(a, first, last);
}

}  // namespace trireme::ops
#endif  // HWY_ONCE
