#include "trireme/optim/adamw_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/optim/adamw_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::optim::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = ops::HWY_NAMESPACE;

/// Compute: how the bfloat16 copy is rounded.
template <class T, class Compute>
void update(const AdamWArguments& a, int64_t first, int64_t last) {
  const hn::ScalableTag<T> d;
  T* master = static_cast<T*>(a.master) + first;
  T* exp_avg = static_cast<T*>(a.exp_avg) + first;
  T* exp_avg_sq = static_cast<T*>(a.exp_avg_sq) + first;
  const T* gradient = static_cast<const T*>(a.gradient) + first;
  auto* bf16 = a.compute_bf16 == nullptr ? nullptr : static_cast<Compute*>(a.compute_bf16) + first;
  T* same = a.compute_same == nullptr ? nullptr : static_cast<T*>(a.compute_same) + first;
  const auto scale = hn::Set(d, static_cast<T>(a.gradient_scale));
  const auto rest1 = hn::Set(d, static_cast<T>(1 - a.beta1));
  const auto beta2 = hn::Set(d, static_cast<T>(a.beta2));
  const auto rest2 = hn::Set(d, static_cast<T>(1 - a.beta2));
  const auto eps = hn::Set(d, static_cast<T>(a.eps));
  const auto keep = hn::Set(d, static_cast<T>(a.keep));
  const auto step_size = hn::Set(d, static_cast<T>(a.step_size));
  const auto inverse_root_bias2 = hn::Set(d, static_cast<T>(1 / a.root_bias2));
  const auto step = [=](int64_t i, auto n) HWY_ATTR {
    const auto g = hn::Mul(simd::load(d, gradient + i, n), scale);
    auto m = simd::load(d, exp_avg + i, n);
    m = hn::MulAdd(rest1, hn::Sub(g, m), m);
    const auto v = hn::MulAdd(hn::Mul(rest2, g), g, hn::Mul(beta2, simd::load(d, exp_avg_sq + i, n)));
    const auto denominator = hn::MulAdd(hn::Sqrt(v), inverse_root_bias2, eps);
    const auto kept = hn::Mul(simd::load(d, master + i, n), keep);
    const auto p = hn::NegMulAdd(step_size, hn::Div(m, denominator), kept);
    simd::store(d, m, exp_avg + i, n);
    simd::store(d, v, exp_avg_sq + i, n);
    simd::store(d, p, master + i, n);
    if (same != nullptr) simd::store(d, p, same + i, n);
    if constexpr (std::is_same_v<T, float>) {
      if (bf16 != nullptr) simd::store(d, p, bf16 + i, n);
    } else {
      if (bf16 != nullptr) {
        for (int64_t k = i; k < std::min<int64_t>(i + hn::Lanes(d), last - first); ++k)
          bf16[k] = ops::narrow<Compute>(static_cast<float>(master[k]));
      }
    }
  };
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), count = last - first;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) step(i, simd::Full{});
  if (i < count) step(i, simd::Part{static_cast<size_t>(count - i)});
}

void adamw(const AdamWArguments& a, int64_t first, int64_t last) {
  if (a.dtype == ops::Storage::kFloat64) return update<double, ops::bfloat16>(a, first, last);
#if TRIREME_OPS_AVX512
  if (ops::has_native_bfloat16()) return update<float, ops::native_bfloat16>(a, first, last);
#endif
  update<float, ops::bfloat16>(a, first, last);
}

/// kLanes sums run side by side whatever the vectors' length: element i belongs to lane i % kLanes.
constexpr int64_t kLanes = 32;

template <class T>
HWY_INLINE double block_norm(const T* x, int64_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<T, decltype(d)> d_in;
  constexpr int64_t kVectorLanes = hn::MaxLanes(hn::ScalableTag<double>());
  constexpr int64_t kVectors = kLanes / kVectorLanes;
  hn::Vec<decltype(d)> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  const auto add = [&](const T* from) HWY_ATTR {
    for (int64_t k = 0; k < kVectors; ++k) {
      auto value = hn::Zero(d);
      if constexpr (std::is_same_v<T, double>)
        value = hn::LoadU(d, from + k * kVectorLanes);
      else
        value = hn::PromoteTo(d, hn::LoadU(d_in, from + k * kVectorLanes));
      sums[k] = hn::Add(sums[k], hn::Mul(value, value));
    }
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) add(x + i);
  if (i < count) {
    T padded[kLanes] = {};
    std::copy(x + i, x + count, padded);
    add(padded);
  }
  double lanes[kLanes];
  for (int64_t k = 0; k < kVectors; ++k) hn::StoreU(sums[k], d, lanes + k * kVectorLanes);
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  return lanes[0];
}

template <class T>
void norms(const NormArguments& a, int64_t first, int64_t last) {
  const T* x = static_cast<const T*>(a.gradient);
  for (int64_t block = first; block < last; ++block)
    a.partials[block] = block_norm(x + block * a.block, std::min(a.block, a.count - block * a.block));
}

void squared_norm(const NormArguments& a, int64_t first, int64_t last) {
  a.dtype == ops::Storage::kFloat64 ? norms<double>(a, first, last) : norms<float>(a, first, last);
}

}  // namespace
}  // namespace trireme::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::optim {

HWY_EXPORT(adamw);
HWY_EXPORT(squared_norm);

void adamw_elements(const AdamWArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(adamw)(a, first, last);
}
void squared_norm_blocks(const NormArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(squared_norm)(a, first, last);
}

}  // namespace trireme::optim
#endif  // HWY_ONCE
