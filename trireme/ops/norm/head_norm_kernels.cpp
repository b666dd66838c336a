#include "trireme/ops/norm/norm_kernels.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/norm/head_norm_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd/loops-inl.h"
#include "trireme/ops/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

// A head's sums end in a chain of dependent steps that takes longer than the work on the head: so heads are
// interleaved.
constexpr int64_t kHeadsTogether = 8;

/// A row's heads.
template <class T>
struct Heads {
  Heads(const HeadNorm& a, int64_t t)
      : count(a.num_heads + a.num_kv_heads),
        qkv(static_cast<T*>(a.qkv) + t * a.row_width),
        raw(a.raw == nullptr ? nullptr : static_cast<T*>(a.raw) + t * count * a.head_dim),
        rstd(static_cast<Wide<T>*>(a.rstd) + t * count) {}
  int64_t count;
  T *qkv, *raw;
  Wide<T>* rstd;

  static bool is_q(const HeadNorm& a, int64_t h) { return h < a.num_heads; }
  static const T* weight(const HeadNorm& a, int64_t h) { return static_cast<const T*>(is_q(a, h) ? a.w_q : a.w_k); }
};

template <class T>
struct ForwardKernel {
  using W = Wide<T>;

  static void rows(const HeadNorm& a, int64_t first, int64_t last) {
    a.past_caches ? rows<kPastWay<T>>(a, first, last) : rows<Way::kCached>(a, first, last);
  }

  template <Way kWay>
  static void rows(const HeadNorm& a, int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const Heads<T> heads(a, t);
      for (int64_t begin = 0; begin < heads.count; begin += kHeadsTogether) {
        const int64_t end = std::min(heads.count, begin + kHeadsTogether);
        for (int64_t h = begin; h < end; ++h) heads.rstd[h] = inverse_root(a, heads.qkv + h * a.head_dim);
        for (int64_t h = begin; h < end; ++h) normalise<kWay>(a, heads, h);
      }
      touch(heads.qkv + heads.count * a.head_dim, heads.qkv + a.row_width);
    }
    after<kWay>();
  }

  static HWY_INLINE W inverse_root(const HeadNorm& a, const T* x) {
    const auto square = [](auto sum, auto v) HWY_ATTR { return values(hn::MulAdd(v, v, sum.v[0])); };
    return W(1) / std::sqrt(sum_of<1>(WideTag<T>(), a.head_dim, square, x)[0] / W(a.head_dim) + W(a.eps));
  }

  template <Way kWay>
  static HWY_INLINE void normalise(const HeadNorm& a, const Heads<T>& heads, int64_t h) {
    const WideTag<T> d;
    T* x = heads.qkv + h * a.head_dim;
    const auto scale = hn::Set(d, heads.rstd[h]), offset = hn::Set(d, static_cast<W>(a.weight_offset));
    const auto normal = [=](auto v, auto weight)
                            HWY_ATTR { return hn::Mul(hn::Mul(v, scale), hn::Add(weight, offset)); };
    if (heads.raw == nullptr)
      map(
          d, a.head_dim, outputs(x), [=](auto v, auto weight) HWY_ATTR { return values(normal(v, weight)); }, x,
          heads.weight(a, h));
    else
      map(
          d, a.head_dim, outputs<kWay, 1>(heads.raw + h * a.head_dim, x),
          [=](auto v, auto weight) HWY_ATTR { return values(v, normal(v, weight)); }, x, heads.weight(a, h));
  }
};

/// With n = raw rstd and g = dy (offset + w):  dx = rstd (g - n mean(g n)), and dw gets dy n.
template <class T>
struct BackwardKernel {
  using W = Wide<T>;
  using V = hn::Vec<WideTag<T>>;

  static void rows(const HeadNorm& a, int64_t first, int64_t last) {
    const WideTag<T> d;
    auto *dw_q = static_cast<W*>(a.dw_q), *dw_k = static_cast<W*>(a.dw_k);
    to_pair_order<T>(d, dw_q, a.head_dim), to_pair_order<T>(d, dw_k, a.head_dim);
    for (int64_t t = first; t < last; ++t) {
      const Heads<T> heads(a, t);
      for (int64_t begin = 0, end = 0; begin < heads.count; begin = end) {
        const bool is_q = heads.is_q(a, begin);
        end = std::min(is_q ? a.num_heads : heads.count, begin + kHeadsTogether);
        together(a, heads, begin, end, is_q ? dw_q : dw_k);
      }
      touch(heads.qkv + heads.count * a.head_dim, heads.qkv + a.row_width);
    }
    to_natural_order<T>(d, dw_q, a.head_dim), to_natural_order<T>(d, dw_k, a.head_dim);
  }

  /// mean(g n)
  static HWY_INLINE W projection(const HeadNorm& a, const Heads<T>& heads, int64_t h) {
    const WideTag<T> d;
    const auto offset = hn::Set(d, static_cast<W>(a.weight_offset));
    const auto product = [=](auto sum, auto v, auto dy, auto weight)
                             HWY_ATTR { return values(hn::MulAdd(hn::Mul(dy, hn::Add(weight, offset)), v, sum.v[0])); };
    const T *raw = heads.raw + h * a.head_dim, *dy = heads.qkv + h * a.head_dim;
    return heads.rstd[h] * sum_of<1>(d, a.head_dim, product, raw, dy, heads.weight(a, h))[0] / W(a.head_dim);
  }

  /// Heads begin..end-1 of one weight: the weight is unpacked, and its sums are loaded and stored, once for all of
  /// them.
  static HWY_INLINE void together(const HeadNorm& a, const Heads<T>& heads, int64_t begin, int64_t end, W* dw) {
    const WideTag<T> d;
    const int64_t dim = a.head_dim, step = 2 * static_cast<int64_t>(hn::Lanes(d));
    const auto offset = hn::Set(d, static_cast<W>(a.weight_offset));
    const T* w = heads.weight(a, begin);
    W slopes[kHeadsTogether];
    for (int64_t h = begin; h < end; ++h) slopes[h - begin] = -heads.rstd[h] * projection(a, heads, h);
    const auto gradient = [](auto n, auto dy, auto weight, auto scale, auto slope)
                              HWY_ATTR { return hn::MulAdd(hn::Mul(dy, weight), scale, hn::Mul(n, slope)); };
    int64_t i = 0;
    for (; i + step <= dim; i += step) {
      const auto stored = load_pair(d, w + i);
      const Pair<V> weight{hn::Add(stored.first, offset), hn::Add(stored.second, offset)};
      auto sum = load_pair(d, dw + i);
      for (int64_t h = begin; h < end; ++h) {
        T* at = heads.qkv + h * dim + i;
        const auto scale = hn::Set(d, heads.rstd[h]), slope = hn::Set(d, slopes[h - begin]);
        const auto v = load_pair(d, heads.raw + h * dim + i), dy = load_pair(d, at);
        const Pair<V> n{hn::Mul(v.first, scale), hn::Mul(v.second, scale)};
        sum = {hn::MulAdd(dy.first, n.first, sum.first), hn::MulAdd(dy.second, n.second, sum.second)};
        store_pair(d,
                   Pair<V>{gradient(n.first, dy.first, weight.first, scale, slope),
                           gradient(n.second, dy.second, weight.second, scale, slope)},
                   at);
      }
      store_pair(d, sum, dw + i);
    }
    if (i == dim) return;
    for (int64_t h = begin; h < end; ++h) {
      T* at = heads.qkv + h * dim + i;
      const auto scale = hn::Set(d, heads.rstd[h]), slope = hn::Set(d, slopes[h - begin]);
      map(
          d, dim - i, outputs(at, dw + i),
          [=](auto v, auto dy, auto weight, auto sum) HWY_ATTR {
            const auto n = hn::Mul(v, scale);
            return values(gradient(n, dy, hn::Add(weight, offset), scale, slope), hn::MulAdd(dy, n, sum));
          },
          heads.raw + h * dim + i, at, w + i, dw + i);
    }
  }
};

void head_norm_forward(const HeadNorm& a, int64_t first, int64_t last) { run<ForwardKernel>(a, first, last); }
void head_norm_backward(const HeadNorm& a, int64_t first, int64_t last) { run<BackwardKernel>(a, first, last); }

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {

TRIREME_DISPATCH_ROWS(head_norm_forward, HeadNorm)
TRIREME_DISPATCH_ROWS(head_norm_backward, HeadNorm)

}  // namespace trireme::ops
#endif  // HWY_ONCE
