#include "trireme/ops/norm_kernels.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/norm_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

template <class T, bool kCentered>
struct ForwardKernel {
  static void rows(const NormForward& a, int64_t first, int64_t last) {
    using W = Wide<T>;
    const WideTag<T> d;
    const int64_t width = a.width;
    const auto* w = static_cast<const T*>(a.w);
    const auto* b = static_cast<const T*>(a.b);
    for (int64_t t = first; t < last; ++t) {
      const T* x = static_cast<const T*>(a.x) + t * width;
      if (a.sum != nullptr) {
        T* sum = static_cast<T*>(a.sum) + t * width;
        const T* residual = static_cast<const T*>(a.residual) + t * width;
        each_vector(d, width, [&](int64_t i, auto n) HWY_ATTR {
          store(d, hn::Add(load(d, x + i, n), load(d, residual + i, n)), sum + i, n);
        });
        x = sum;  // what is normalised is the rounded sum: the backward finds the same numbers
      }
      W mean = 0;
      if constexpr (kCentered) {
        mean = sum_over(d, width, [&](int64_t i, auto n) HWY_ATTR { return load(d, x + i, n); }) / W(width);
      }
      const auto v_mean = hn::Set(d, mean);
      const W squares = sum_over(d, width, [&](int64_t i, auto n) HWY_ATTR {
        const auto centered = kCentered ? hn::Sub(load(d, x + i, n), v_mean) : load(d, x + i, n);
        return hn::Mul(centered, centered);
      });
      const W rstd = W(1) / std::sqrt(squares / W(width) + W(a.eps));
      static_cast<W*>(a.rstd)[t] = rstd;
      if constexpr (kCentered) static_cast<W*>(a.mean)[t] = mean;

      const auto v_rstd = hn::Set(d, rstd);
      T* y = static_cast<T*>(a.y) + t * width;
      each_vector(d, width, [&](int64_t i, auto n) HWY_ATTR {
        auto normal = load(d, x + i, n);
        if constexpr (kCentered) normal = hn::Sub(normal, v_mean);
        normal = hn::Mul(normal, v_rstd);
        if constexpr (kCentered) {
          store(d, hn::MulAdd(normal, load(d, w + i, n), load(d, b + i, n)), y + i, n);
        } else {
          store(d, hn::Mul(normal, load(d, w + i, n)), y + i, n);
        }
      });
    }
  }
};

/// With n = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - n mean(g n));  without centering mean(g) is absent.
template <class T, bool kCentered>
struct BackwardKernel {
  static void rows(const NormBackward& a, int64_t first, int64_t last) {
    using W = Wide<T>;
    const WideTag<T> d;
    const int64_t width = a.width;
    const auto* w = static_cast<const T*>(a.w);
    const auto* b = static_cast<const T*>(a.b);
    auto* dw = static_cast<W*>(a.dw_sum);
    auto* db = static_cast<W*>(a.db_sum);
    for (int64_t t = first; t < last; ++t) {
      const T* x = static_cast<const T*>(a.x) + t * width;
      const T* dy = static_cast<const T*>(a.dy) + t * width;
      const T* d_residual = a.d_residual == nullptr ? nullptr : static_cast<const T*>(a.d_residual) + t * width;
      T* y = static_cast<T*>(a.y) + t * width;
      T* dx = static_cast<T*>(a.dx) + t * width;
      const auto rstd = hn::Set(d, static_cast<const W*>(a.rstd)[t]);
      const auto mean = hn::Set(d, kCentered ? static_cast<const W*>(a.mean)[t] : W(0));
      const auto normalised = [&](int64_t i, auto n) HWY_ATTR {
        const auto value = load(d, x + i, n);
        return hn::Mul(kCentered ? hn::Sub(value, mean) : value, rstd);
      };
      const auto projection = hn::Set(d, sum_over(d, width, [&](int64_t i, auto n) HWY_ATTR {
                                           const auto g = hn::Mul(load(d, dy + i, n), load(d, w + i, n));
                                           return hn::Mul(g, normalised(i, n));
                                         }) / W(width));
      auto offset = hn::Zero(d);
      if constexpr (kCentered) {
        offset = hn::Set(d, sum_over(d, width, [&](int64_t i, auto n) HWY_ATTR {
                              return hn::Mul(load(d, dy + i, n), load(d, w + i, n));
                            }) / W(width));
      }
      each_vector(d, width, [&](int64_t i, auto n) HWY_ATTR {
        const auto normal = normalised(i, n);
        const auto weight = load(d, w + i, n);
        const auto grad = load(d, dy + i, n);  // read before y, which may lie in the same place
        auto inner = hn::NegMulAdd(normal, projection, hn::Mul(grad, weight));
        if constexpr (kCentered) inner = hn::Sub(inner, offset);
        auto result = hn::Mul(rstd, inner);
        if (d_residual != nullptr) result = hn::Add(result, load(d, d_residual + i, n));
        store(d, result, dx + i, n);
        store(d, hn::MulAdd(grad, normal, load(d, dw + i, n)), dw + i, n);
        if constexpr (kCentered) {
          store(d, hn::Add(load(d, db + i, n), grad), db + i, n);
          store(d, hn::MulAdd(normal, weight, load(d, b + i, n)), y + i, n);
        } else {
          store(d, hn::Mul(normal, weight), y + i, n);
        }
      });
    }
  }
};

template <class T>
using RmsForward = ForwardKernel<T, false>;
template <class T>
using LayerForward = ForwardKernel<T, true>;
template <class T>
using RmsBackward = BackwardKernel<T, false>;
template <class T>
using LayerBackward = BackwardKernel<T, true>;

void rms_forward(const NormForward& a, int64_t first, int64_t last) { run<RmsForward>(a, first, last); }
void layer_forward(const NormForward& a, int64_t first, int64_t last) { run<LayerForward>(a, first, last); }
void rms_backward(const NormBackward& a, int64_t first, int64_t last) { run<RmsBackward>(a, first, last); }
void layer_backward(const NormBackward& a, int64_t first, int64_t last) { run<LayerBackward>(a, first, last); }

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {

HWY_EXPORT(rms_forward);
HWY_EXPORT(layer_forward);
HWY_EXPORT(rms_backward);
HWY_EXPORT(layer_backward);

void rms_norm_forward_rows(const NormForward& arguments, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(rms_forward)(arguments, first, last);
}
void layer_norm_forward_rows(const NormForward& arguments, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(layer_forward)(arguments, first, last);
}
void rms_norm_backward_rows(const NormBackward& arguments, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(rms_backward)(arguments, first, last);
}
void layer_norm_backward_rows(const NormBackward& arguments, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(layer_backward)(arguments, first, last);
}

}  // namespace trireme::ops
#endif  // HWY_ONCE
