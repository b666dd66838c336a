#include "trireme/ops/elementwise/magnitude_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/elementwise/magnitude_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

/// Calls step(i, count) for the vectors of elements begin..end-1; count says how much of a vector there is.
template <class D, class Step>
HWY_INLINE void each_vector(D d, int64_t begin, int64_t end, const Step& step) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) step(i, Full{});
  if (i < end) step(i, Part{static_cast<size_t>(end - i)});
}

template <class T>
struct ScaleColumns {
  static void rows(const ScaleColumnsArguments& args, int64_t first, int64_t last) {
    args.adds ? rows<true>(args, first, last) : rows<false>(args, first, last);
  }

  template <bool kAdds>
  static void rows(const ScaleColumnsArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    const auto* factors = static_cast<const Wide<T>*>(args.factors);
    const auto shift = hn::Set(d, static_cast<Wide<T>>(args.shift));
    for (int64_t t = first; t < last; ++t) {
      T* y = static_cast<T*>(args.y) + t * args.y_stride;
      const T* x = static_cast<const T*>(args.x) + t * args.x_stride;
      each_vector(d, 0, args.width, [&](int64_t i, auto count) HWY_ATTR {
        auto value = hn::Mul(load(d, x + i, count), hn::Add(load(d, factors + i, count), shift));
        if constexpr (kAdds) value = hn::Add(load(d, y + i, count), value);
        store(d, value, y + i, count);
      });
    }
  }
};

template <class T>
struct MergedSquares {
  using D = WideTag<T>;

  static void rows(const MergedSquaresArguments& args, int64_t first, int64_t last) {
    args.by_columns ? column_blocks(args, first, last) : whole_rows(args, first, last);
  }

  /// (w + scale p)^2 + sum of the vectors from element `at` on.
  template <class Count>
  static HWY_INLINE hn::Vec<D> plus_square(const MergedSquaresArguments& args, int64_t at, Count count,
                                           hn::Vec<D> sum) {
    const D d;
    const auto p = load(d, static_cast<const Wide<T>*>(args.p) + at, count);
    const auto merged =
        hn::MulAdd(p, hn::Set(d, static_cast<Wide<T>>(args.scale)), load(d, static_cast<const T*>(args.w) + at, count));
    return hn::MulAdd(merged, merged, sum);
  }

  static void whole_rows(const MergedSquaresArguments& args, int64_t first, int64_t last) {
    const D d;
    for (int64_t t = first; t < last; ++t) {
      auto sum = hn::Zero(d);
      each_vector(d, 0, args.width,
                  [&](int64_t i, auto count) HWY_ATTR { sum = plus_square(args, t * args.width + i, count, sum); });
      static_cast<Wide<T>*>(args.sums)[t] = hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }

  static void column_blocks(const MergedSquaresArguments& args, int64_t first, int64_t last) {
    const D d;
    auto* sums = static_cast<Wide<T>*>(args.sums);
    const int64_t begin = first * args.kColumns, end = std::min(args.width, last * args.kColumns);
    for (int64_t t = 0; t < args.rows; ++t)
      each_vector(d, begin, end, [&](int64_t i, auto count) HWY_ATTR {
        store(d, plus_square(args, t * args.width + i, count, load(d, sums + i, count)), sums + i, count);
      });
  }
};

void scale_columns(const ScaleColumnsArguments& a, int64_t first, int64_t last) { run<ScaleColumns>(a, first, last); }
void merged_squares(const MergedSquaresArguments& a, int64_t first, int64_t last) {
  run<MergedSquares>(a, first, last);
}

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {
TRIREME_DISPATCH_ROWS(scale_columns, ScaleColumnsArguments)
TRIREME_DISPATCH_ROWS(merged_squares, MergedSquaresArguments)
}  // namespace trireme::ops
#endif
