#include "trireme/ops/head_norm_kernels.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/head_norm_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd-inl.h"
#include "trireme/ops/simd_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

template <class T>
struct ForwardKernel {
  using W = Wide<T>;

  static void rows(const HeadNorm& a, int64_t first, int64_t last) {
    const int64_t heads = a.num_heads + a.num_kv_heads;
    for (int64_t t = first; t < last; ++t)
      for (int64_t h = 0; h < heads; ++h) {
        T* x = static_cast<T*>(a.qkv) + t * a.row_width + h * a.head_dim;
        T* raw = a.raw == nullptr ? x : static_cast<T*>(a.raw) + (t * heads + h) * a.head_dim;
        const auto* w = static_cast<const T*>(h < a.num_heads ? a.w_q : a.w_k);
        head(a, x, raw, w, static_cast<W*>(a.rstd) + t * heads + h);
      }
  }

  static HWY_INLINE void head(const HeadNorm& a, T* x, T* raw, const T* w, W* rstd) {
    const WideTag<T> d;
    const auto square = [](auto sum, auto v) HWY_ATTR { return values(hn::MulAdd(v, v, sum.v[0])); };
    *rstd = W(1) / std::sqrt(sum_of<1>(d, a.head_dim, square, x)[0] / W(a.head_dim) + W(a.eps));
    const auto scale = hn::Set(d, *rstd), offset = hn::Set(d, static_cast<W>(a.weight_offset));
    const auto normal = [=](auto v, auto weight)
                            HWY_ATTR { return hn::Mul(hn::Mul(v, scale), hn::Add(weight, offset)); };
    if (raw == x)
      map(d, a.head_dim, outputs(x), [=](auto v, auto weight) HWY_ATTR { return values(normal(v, weight)); }, x, w);
    else
      map(
          d, a.head_dim, outputs(raw, x), [=](auto v, auto weight) HWY_ATTR { return values(v, normal(v, weight)); }, x,
          w);
  }
};

/// With n = raw rstd and g = dy (offset + w):  dx = rstd (g - n mean(g n)), and dw gets dy n.
template <class T>
struct BackwardKernel {
  using W = Wide<T>;

  static void rows(const HeadNorm& a, int64_t first, int64_t last) {
    const WideTag<T> d;
    const int64_t heads = a.num_heads + a.num_kv_heads;
    auto *dw_q = static_cast<W*>(a.dw_q), *dw_k = static_cast<W*>(a.dw_k);
    to_pair_order<T>(d, dw_q, a.head_dim), to_pair_order<T>(d, dw_k, a.head_dim);
    for (int64_t t = first; t < last; ++t)
      for (int64_t h = 0; h < heads; ++h) {
        const bool is_q = h < a.num_heads;
        head(a, static_cast<T*>(a.qkv) + t * a.row_width + h * a.head_dim,
             static_cast<const T*>(a.raw) + (t * heads + h) * a.head_dim, static_cast<const T*>(is_q ? a.w_q : a.w_k),
             static_cast<const W*>(a.rstd)[t * heads + h], is_q ? dw_q : dw_k);
      }
    to_natural_order<T>(d, dw_q, a.head_dim), to_natural_order<T>(d, dw_k, a.head_dim);
  }

  static HWY_INLINE void head(const HeadNorm& a, T* gradient, const T* raw, const T* w, W rstd, W* dw) {
    const WideTag<T> d;
    const auto scale = hn::Set(d, rstd), offset = hn::Set(d, static_cast<W>(a.weight_offset));
    const auto product = [=](auto sum, auto v, auto dy, auto weight)
                             HWY_ATTR { return values(hn::MulAdd(hn::Mul(dy, hn::Add(weight, offset)), v, sum.v[0])); };
    const auto projection = hn::Set(d, rstd * sum_of<1>(d, a.head_dim, product, raw, gradient, w)[0] / W(a.head_dim));
    map(
        d, a.head_dim, outputs(gradient, dw),
        [=](auto v, auto dy, auto weight, auto sum) HWY_ATTR {
          const auto normal = hn::Mul(v, scale), g = hn::Mul(dy, hn::Add(weight, offset));
          return values(hn::Mul(scale, hn::NegMulAdd(normal, projection, g)), hn::MulAdd(dy, normal, sum));
        },
        raw, gradient, w, dw);
  }
};

void forward(const HeadNorm& a, int64_t first, int64_t last) { run<ForwardKernel>(a, first, last); }
void backward(const HeadNorm& a, int64_t first, int64_t last) { run<BackwardKernel>(a, first, last); }

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void head_norm_forward_rows(const HeadNorm& arguments, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(forward)(arguments, first, last);
}
void head_norm_backward_rows(const HeadNorm& arguments, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(backward)(arguments, first, last);
}

}  // namespace trireme::ops
#endif  // HWY_ONCE
