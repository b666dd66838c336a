#include "trireme/ops/elementwise/dropout_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/elementwise/dropout_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

template <class T>
struct Dropout {
  using D = WideTag<T>;
  using D32 = hn::Rebind<uint32_t, D>;

  static void rows(const DropoutArguments& args, int64_t first, int64_t last) {
    args.adds ? rows<true, Wide<T>>(args, first, last) : rows<false, T>(args, first, last);
  }

  template <bool kAdds, class In>
  static void rows(const DropoutArguments& args, int64_t first, int64_t last) {
    const D d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto factor = hn::Set(d, static_cast<Wide<T>>(args.factor));
    for (int64_t t = first; t < last; ++t) {
      T* y = static_cast<T*>(args.y) + t * args.y_stride;
      const In* x = static_cast<const In*>(args.x) + t * args.width;
      const auto step = [&](int64_t i, auto count) HWY_ATTR {
        auto value = load(d, x + i, count);
        if (args.keys != nullptr) value = hn::Mul(value, hn::Mul(factor, kept(args, args.keys[t], i)));
        if constexpr (kAdds) value = hn::Add(load(d, y + i, count), value);
        store(d, value, y + i, count);
      };
      int64_t i = 0;
      for (; i + lanes <= args.width; i += lanes) step(i, Full{});
      if (i < args.width) step(i, Part{static_cast<size_t>(args.width - i)});
    }
  }

  /// 1 for the elements from column i on that are kept, else 0.
  static HWY_INLINE hn::Vec<D> kept(const DropoutArguments& args, uint32_t key, int64_t i) {
    const D32 d32;
    constexpr uint32_t kGolden = 0x9E3779B9u;
    const uint32_t begin = key + static_cast<uint32_t>(args.first_column + i) * kGolden;
    auto h = hn::Add(hn::Set(d32, begin), hn::Mul(hn::Iota(d32, 0), hn::Set(d32, kGolden)));
    h = hn::Mul(hn::Xor(h, hn::ShiftRight<16>(h)), hn::Set(d32, 0x7feb352du));
    h = hn::Mul(hn::Xor(h, hn::ShiftRight<15>(h)), hn::Set(d32, 0x846ca68bu));
    h = hn::Xor(h, hn::ShiftRight<16>(h));
    const auto stays = hn::Eq(hn::Max(h, hn::Set(d32, args.threshold)), h);
    const hn::Rebind<int32_t, D> whole;
    const auto one = hn::BitCast(whole, hn::IfThenElseZero(stays, hn::Set(d32, 1u)));
    if constexpr (sizeof(Wide<T>) == 4)
      return hn::ConvertTo(D(), one);
    else
      return hn::PromoteTo(D(), one);
  }
};

void dropout(const DropoutArguments& a, int64_t first, int64_t last) { run<Dropout>(a, first, last); }

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {
TRIREME_DISPATCH_ROWS(dropout, DropoutArguments)
}  // namespace trireme::ops
#endif
