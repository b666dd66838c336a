#include "trireme/ops/cross_entropy_shard_kernels.h"

#include <cstring>
#include <limits>

#include "trireme/ops/cross_entropy_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/cross_entropy_shard_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/cross_entropy_rows-inl.h"
#include "trireme/ops/simd-inl.h"
#include "trireme/ops/simd_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

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
    auto *sum_exp = static_cast<W*>(args.sum_exp), *target_logit = static_cast<W*>(args.target_logit);
    for (int64_t t = first; t < last; ++t) {
      const T* x = static_cast<const T*>(args.logits) + t * args.width;
      sum_exp[t] = target_logit[t] = 0;
      if (args.targets[t] == kNotSupervised) continue;
      const int64_t target = args.targets[t] - args.first;
      if (target >= 0 && target < args.num_valid) target_logit[t] = widen(x[target]);
      sum_exp[t] = sum_of_exponentials(x, args.num_valid, static_cast<const W*>(args.row_max)[t]);
    }
  }
};

template <class T>
struct ShardGradient {
  static void rows(const VocabularyShard& args, int64_t first, int64_t last) {
    using W = Wide<T>;
    for (int64_t t = first; t < last; ++t) {
      T* x = static_cast<T*>(args.logits) + t * args.width;
      const int64_t valid = args.targets[t] == kNotSupervised ? 0 : args.num_valid;
      std::memset(x + valid, 0, (args.width - valid) * sizeof(T));
      if (valid == 0) continue;
      to_gradient(x, valid, static_cast<const W*>(args.row_max)[t], static_cast<const W*>(args.sum_exp)[t],
                  {args.scale, args.softcap, args.targets[t] - args.first});
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
