// Sums in float64 that have the same bits for every instruction set: element i belongs to lane i % 32, whatever the
// length of vectors, and lanes are added pairwise. Included once per instruction set, as that.
#if defined(TRIREME_OPTIM_LANE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_OPTIM_LANE_SUMS_INL_H_
#undef TRIREME_OPTIM_LANE_SUMS_INL_H_
#else
#define TRIREME_OPTIM_LANE_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace trireme::optim::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLanes = 32;
using DoubleTag = hn::ScalableTag<double>;

/// A vector of elements as doubles; of fewer than a vector, the others are 0.
template <class T>
HWY_INLINE hn::Vec<DoubleTag> load_doubles(const T* from) {
  if constexpr (std::is_same_v<T, double>)
    return hn::LoadU(DoubleTag(), from);
  else
    return hn::PromoteTo(DoubleTag(), hn::LoadU(hn::Rebind<T, DoubleTag>(), from));
}
template <class T>
HWY_INLINE hn::Vec<DoubleTag> load_doubles(const T* from, int64_t count) {
  HWY_ALIGN T padded[hn::MaxLanes(DoubleTag())] = {};
  std::copy(from, from + count, padded);
  return load_doubles(padded);
}

/// The sum of squares of value(i), a vector of doubles from element i on, for elements [0, count). value(i, n) gives n
/// elements and zeros behind them.
template <class Value>
HWY_INLINE double sum_of_squares(int64_t count, const Value& value) {
  constexpr DoubleTag d;
  constexpr int64_t kVectorLanes = hn::MaxLanes(d), kVectors = kLanes / kVectorLanes;
  hn::Vec<DoubleTag> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t k = 0; k < kVectors; ++k) {
      const auto v = value(i + k * kVectorLanes);
      sums[k] = hn::Add(sums[k], hn::Mul(v, v));
    }
  for (int64_t k = 0; i < count; i += kVectorLanes, ++k) {
    const auto v = value(i, std::min(kVectorLanes, count - i));
    sums[k] = hn::Add(sums[k], hn::Mul(v, v));
  }
  double lanes[kLanes];
  for (int64_t k = 0; k < kVectors; ++k) hn::StoreU(sums[k], d, lanes + k * kVectorLanes);
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  return lanes[0];
}

/// The sum of squares of x[0 .. count).
template <class T>
HWY_INLINE double sum_of_squares_of(const T* x, int64_t count) {
  struct Loads {
    const T* from;
    HWY_INLINE auto operator()(int64_t i) const { return load_doubles(from + i); }
    HWY_INLINE auto operator()(int64_t i, int64_t n) const { return load_doubles(from + i, n); }
  };
  return sum_of_squares(count, Loads{x});
}

}  // namespace trireme::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
