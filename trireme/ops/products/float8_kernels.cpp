#include "trireme/ops/products/float8_kernels.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/products/float8_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

using Float8Tag = WideTag<bfloat16>;

/// Calls step(i, count) for the vectors of a row; count says how much of a vector there is.
template <class Step>
HWY_INLINE void each_float8_vector(int64_t width, const Step& step) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Float8Tag()));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) step(i, Full{});
  if (i < width) step(i, Part{static_cast<size_t>(width - i)});
}

void float8_largest(const Float8Largest& a, int64_t first, int64_t last) {
  const Float8Tag d;
  const hn::RebindToUnsigned<Float8Tag> d32;
  for (int64_t t = first; t < last; ++t) {
    const auto* x = static_cast<const bfloat16*>(a.x) + t * a.x_stride;
    auto most = hn::Zero(d32);  // magnitudes are ordered as their bits
    each_float8_vector(a.width, [&](int64_t i, auto count) HWY_ATTR {
      most = hn::Max(most, hn::BitCast(d32, hn::Abs(load(d, x + i, count))));
    });
    const uint32_t bits = std::min<uint32_t>(hn::GetLane(hn::MaxOfLanes(d32, most)), 0x7F800000);
    a.largest[t] = std::bit_cast<float>(bits);
  }
}

// The sum with a power of two whose last bit is that of the rounded number rounds to nearest even.
void float8_round(const Float8Round& a, int64_t first, int64_t last) {
  const Float8Tag d;
  const hn::RebindToUnsigned<Float8Tag> d32;
  const auto scale = hn::Set(d, a.scale), inverse = hn::Set(d, 1 / a.scale);
  const auto least = hn::Set(d32, static_cast<uint32_t>(127 + a.least_exponent));
  const auto to_last_bit = hn::Set(d32, static_cast<uint32_t>(23 - a.mantissa_bits));
  const auto nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  for (int64_t t = first; t < last; ++t) {
    const auto* x = static_cast<const bfloat16*>(a.x) + t * a.x_stride;
    auto* y = static_cast<bfloat16*>(a.y) + t * a.width;
    each_float8_vector(a.width, [&](int64_t i, auto count) HWY_ATTR {
      const auto value = load(d, x + i, count), size = hn::Mul(hn::Abs(value), inverse);
      const auto exponent = hn::Max(hn::ShiftRight<23>(hn::BitCast(d32, size)), least);
      const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(exponent, to_last_bit)));
      const auto rounded = hn::Sub(hn::Add(size, power), power);
      const auto finite = hn::RebindMask(d, hn::Lt(exponent, hn::Set(d32, 255)));
      store(d, hn::CopySign(hn::IfThenElse(finite, hn::Mul(rounded, scale), nan), value), y + i, count);
    });
  }
}

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {
TRIREME_DISPATCH_ROWS(float8_largest, Float8Largest)
TRIREME_DISPATCH_ROWS(float8_round, Float8Round)
}  // namespace trireme::ops
#endif
