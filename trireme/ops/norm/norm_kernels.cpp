#include "trireme/ops/norm/norm_kernels.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/norm/norm_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd/loops-inl.h"
#include "trireme/ops/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

enum class Norm { kRms, kLayer };

// (x - mean) rstd. For bfloat16 it is one multiply-add, x rstd - mean rstd; `subtracted` is then mean rstd.
template <class T, class V>
HWY_INLINE V normalised(V x, V rstd, V subtracted) {
  return kIsBfloat16<T> ? hn::MulSub(x, rstd, subtracted) : hn::Mul(hn::Sub(x, subtracted), rstd);
}
template <class T, class D>
HWY_INLINE hn::Vec<D> subtracted(D d, Wide<T> mean, Wide<T> rstd) {
  return hn::Set(d, kIsBfloat16<T> ? mean * rstd : mean);
}

template <class T, Norm kNorm>
struct ForwardKernel {
  static constexpr bool kCentered = kNorm == Norm::kLayer;
  using W = Wide<T>;
  using D = WideTag<T>;

  static void rows(const NormForward& a, int64_t first, int64_t last) {
    a.past_caches ? rows<kPastWay<T>>(a, first, last) : rows<Way::kCached>(a, first, last);
  }

  template <Way kWay>
  static void rows(const NormForward& a, int64_t first, int64_t last) {
    a.sum == nullptr ? in_turn<kWay>(a, first, last) : one_ahead<kWay>(a, first, last);
    after<kWay>();
  }

  // A row's sums end in a chain of dependent steps that takes as long as the work on a short row. So rows are
  // interleaved; or, if a sum is written too, a row is normalised while the sums of the next one end (a fifth faster).
  template <Way kWay>
  static HWY_INLINE void in_turn(const NormForward& a, int64_t first, int64_t last) {
    constexpr int64_t kTogether = 4;
    for (int64_t t = first; t < last; t += kTogether) {
      const int64_t count = std::min(kTogether, last - t);
      Moments moments[kTogether];
      for (int64_t k = 0; k < count; ++k) moments[k] = moments_of(row(a, t + k), a.width);
      for (int64_t k = 0; k < count; ++k) normalise<kWay>(a, t + k, moments[k]);
    }
  }
  template <Way kWay>
  static HWY_INLINE void one_ahead(const NormForward& a, int64_t first, int64_t last) {
    Moments next = moments_of(summed<kWay>(a, first), a.width);
    for (int64_t t = first; t < last; ++t) {
      const Moments moments = next;
      if (t + 1 < last) next = moments_of(summed<kWay>(a, t + 1), a.width);
      normalise<kWay>(a, t, moments);
    }
  }

  static HWY_INLINE const T* row(const NormForward& a, int64_t t) { return static_cast<const T*>(a.x) + t * a.width; }

  /// The sum that row t normalises: the rounded numbers that the backward reads.
  template <Way kWay>
  static HWY_INLINE T* place_of_sum(const NormForward& a, int64_t t) {
    return kWay != Way::kCached ? static_cast<T*>(a.kept) + t % 2 * a.width : static_cast<T*>(a.sum) + t * a.width;
  }
  template <Way kWay>
  static HWY_INLINE const T* summed(const NormForward& a, int64_t t) {
    const D d;
    const T* x = row(a, t);
    const T* residual = static_cast<const T*>(a.residual) + t * a.width;
    T *sum = static_cast<T*>(a.sum) + t * a.width, *place = place_of_sum<kWay>(a, t);
    if constexpr (kWay != Way::kCached)
      map(
          d, a.width, outputs<kWay, 1>(sum, place),
          [](auto v, auto r) HWY_ATTR { return values(hn::Add(v, r), hn::Add(v, r)); }, x, residual);
    else
      map(d, a.width, outputs(sum), [](auto v, auto r) HWY_ATTR { return values(hn::Add(v, r)); }, x, residual);
    return place;
  }

  struct Moments {
    W mean, variance;
  };

  template <Way kWay>
  static HWY_INLINE void normalise(const NormForward& a, int64_t t, Moments moments) {
    const D d;
    const W rstd = W(1) / std::sqrt(moments.variance + W(a.eps));
    static_cast<W*>(a.rstd)[t] = rstd;
    if constexpr (kCentered) static_cast<W*>(a.mean)[t] = moments.mean;

    const auto v_rstd = hn::Set(d, rstd), v_mean = subtracted<T>(d, moments.mean, rstd);
    const T* x = a.sum == nullptr ? row(a, t) : place_of_sum<kWay>(a, t);
    const auto *w = static_cast<const T*>(a.w), *b = static_cast<const T*>(a.b);
    const auto y = outputs<kWay>(static_cast<T*>(a.y) + t * a.width);
    if constexpr (kCentered) {
      map(
          d, a.width, y,
          [=](auto v, auto weight, auto bias)
              HWY_ATTR { return values(hn::MulAdd(normalised<T>(v, v_rstd, v_mean), weight, bias)); },
          x, w, b);
    } else {
      const auto offset = hn::Set(d, W(a.weight_offset));
      map(
          d, a.width, y,
          [=](auto v, auto weight) HWY_ATTR { return values(hn::Mul(hn::Mul(v, v_rstd), hn::Add(weight, offset))); }, x,
          w);
    }
  }

  static HWY_INLINE Moments moments_of(const T* x, int64_t width) {
    const D d;
    const auto square = [](auto sum, auto v) HWY_ATTR { return values(hn::MulAdd(v, v, sum.v[0])); };
    if constexpr (!kCentered) return {0, sum_of<1>(d, width, square, x)[0] / W(width)};
    if constexpr (kIsBfloat16<T>) {
      // In one pass. If the mean is so large that this loses bits, rounding x to bfloat16 has lost more.
      const auto both = [](auto sum, auto v)
                            HWY_ATTR { return values(hn::Add(sum.v[0], v), hn::MulAdd(v, v, sum.v[1])); };
      const auto sums = sum_of<2>(d, width, both, x);
      const W mean = sums[0] / W(width);
      return {mean, std::max(W(0), sums[1] / W(width) - mean * mean)};
    }
    const auto add = [](auto sum, auto v) HWY_ATTR { return values(hn::Add(sum.v[0], v)); };
    const W mean = sum_of<1>(d, width, add, x)[0] / W(width);
    const auto v_mean = hn::Set(d, mean);
    const auto squares =
        sum_of<1>(d, width, [=](auto sum, auto v) HWY_ATTR { return square(sum, hn::Sub(v, v_mean)); }, x);
    return {mean, squares[0] / W(width)};
  }
};

/// With n = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - n mean(g n));  without centering mean(g) is absent.
template <class T, Norm kNorm>
struct BackwardKernel {
  static constexpr bool kCentered = kNorm == Norm::kLayer;
  using W = Wide<T>;
  using D = WideTag<T>;
  using V = hn::Vec<D>;

  static void rows(const NormBackward& a, int64_t first, int64_t last) {
    const D d;
    auto *dw = static_cast<W*>(a.dw_sum), *db = static_cast<W*>(a.db_sum);
    to_pair_order<T>(d, dw, a.width);
    if constexpr (kCentered) to_pair_order<T>(d, db, a.width);
    if (a.past_caches)
      a.d_residual == nullptr ? rows<kPastWay<T>, false>(a, first, last, dw, db)
                              : rows<kPastWay<T>, true>(a, first, last, dw, db);
    else
      a.d_residual == nullptr ? rows<Way::kCached, false>(a, first, last, dw, db)
                              : rows<Way::kCached, true>(a, first, last, dw, db);
    to_natural_order<T>(d, dw, a.width);
    if constexpr (kCentered) to_natural_order<T>(d, db, a.width);
  }

  template <Way kWay, bool kResidual>
  static void rows(const NormBackward& a, int64_t first, int64_t last, W* dw, W* db) {
    // One by one: interleaving two or four rows costs a fifth more beyond the caches.
    for (int64_t t = first; t < last; ++t) row<kWay, kResidual>(a, t, dw, db);
    after<kWay>();
  }

  /// n from x, in row t.
  struct Normal {
    Normal(const NormBackward& a, int64_t t)
        : rstd(hn::Set(D(), static_cast<const W*>(a.rstd)[t])),
          mean(kCentered ? subtracted<T>(D(), static_cast<const W*>(a.mean)[t], static_cast<const W*>(a.rstd)[t])
                         : hn::Zero(D())) {}
    V rstd, mean;
    HWY_INLINE V of(V x) const { return kCentered ? normalised<T>(x, rstd, mean) : hn::Mul(x, rstd); }
  };

  struct Means {
    W projection;  ///< mean(g n)
    W offset;  ///< mean(g)
  };

  static HWY_INLINE Means means_of(const NormBackward& a, int64_t t) {
    const D d;
    const Normal normal(a, t);
    const auto* w = static_cast<const T*>(a.w);
    const T* x = static_cast<const T*>(a.x) + t * a.width;
    const T* dy = static_cast<const T*>(a.dy) + t * a.width;
    const W rstd = static_cast<const W*>(a.rstd)[t];
    const V weight_offset = hn::Set(d, W(a.weight_offset));
    if constexpr (!kCentered) {
      const auto add = [=](auto sum, auto v, auto grad, auto weight) HWY_ATTR {
        return values(hn::MulAdd(hn::Mul(grad, hn::Add(weight, weight_offset)), v, sum.v[0]));
      };
      return {rstd * sum_of<1>(d, a.width, add, x, dy, w)[0] / W(a.width), 0};
    } else {
      // For bfloat16 sum(g n) = rstd (sum(g x) - mean sum(g)): this loses less than rounding x has lost.
      const auto add = [=](auto sum, auto v, auto grad, auto weight) HWY_ATTR {
        const auto g = hn::Mul(grad, weight);
        return values(hn::MulAdd(g, kIsBfloat16<T> ? v : normal.of(v), sum.v[0]), hn::Add(sum.v[1], g));
      };
      const auto sums = sum_of<2>(d, a.width, add, x, dy, w);
      const W mean = static_cast<const W*>(a.mean)[t],
              projection = kIsBfloat16<T> ? rstd * (sums[0] - mean * sums[1]) : sums[0];
      return {projection / W(a.width), sums[1] / W(a.width)};
    }
  }

  /// The constants of a row: dx = rstd g + slope n + constant + residual.
  struct Row {
    Row(const NormBackward& a, int64_t t, Means means)
        : normal(a, t),
          slope(hn::Mul(normal.rstd, hn::Set(D(), -means.projection))),
          constant(hn::Mul(normal.rstd, hn::Set(D(), -means.offset))) {}
    Normal normal;
    V slope, constant;

    template <bool kResidual>
    HWY_INLINE V gradient(V n, V grad, V weight, V residual) const {
      const V projected = kCentered   ? hn::MulAdd(n, slope, constant)
                          : kResidual ? hn::MulAdd(n, slope, residual)
                                      : hn::Mul(n, slope);
      const V dx = hn::MulAdd(hn::Mul(grad, weight), normal.rstd, projected);
      return kCentered && kResidual ? hn::Add(dx, residual) : dx;
    }
  };

  template <Way kWay, bool kResidual>
  static HWY_INLINE void row(const NormBackward& a, int64_t t, W* dw, W* db) {
    const D d;
    const Row row(a, t, means_of(a, t));
    const int64_t width = a.width;
    const auto* w = static_cast<const T*>(a.w);
    const T *x = static_cast<const T*>(a.x) + t * width, *dy = static_cast<const T*>(a.dy) + t * width;
    // Without a residual, some memory to read that is not used.
    const T* d_residual = kResidual ? static_cast<const T*>(a.d_residual) + t * width : x;
    T *dx = static_cast<T*>(a.dx) + t * width, *y = static_cast<T*>(a.y) + t * width;
    if constexpr (kCentered) {
      map(
          d, width, outputs<kWay, 2>(dx, y, dw, db),
          [=](auto v, auto grad, auto weight, auto bias, auto residual, auto w_sum, auto b_sum) HWY_ATTR {
            const auto n = row.normal.of(v);
            return values(row.template gradient<kResidual>(n, grad, weight, residual), hn::MulAdd(n, weight, bias),
                          hn::MulAdd(grad, n, w_sum), hn::Add(b_sum, grad));
          },
          x, dy, w, static_cast<const T*>(a.b), d_residual, dw, db);
    } else {
      map(
          d, width, outputs<kWay, 2>(dx, y, dw),
          [=, offset = hn::Set(d, W(a.weight_offset))](auto v, auto grad, auto stored, auto residual, auto w_sum)
              HWY_ATTR {
                const auto n = row.normal.of(v), weight = hn::Add(stored, offset);
                return values(row.template gradient<kResidual>(n, grad, weight, residual), hn::Mul(n, weight),
                              hn::MulAdd(grad, n, w_sum));
              },
          x, dy, w, d_residual, dw);
    }
  }
};

template <class T>
using RmsForward = ForwardKernel<T, Norm::kRms>;
template <class T>
using LayerForward = ForwardKernel<T, Norm::kLayer>;
template <class T>
using RmsBackward = BackwardKernel<T, Norm::kRms>;
template <class T>
using LayerBackward = BackwardKernel<T, Norm::kLayer>;

void rms_norm_forward(const NormForward& a, int64_t first, int64_t last) { run<RmsForward>(a, first, last); }
void layer_norm_forward(const NormForward& a, int64_t first, int64_t last) { run<LayerForward>(a, first, last); }
void rms_norm_backward(const NormBackward& a, int64_t first, int64_t last) { run<RmsBackward>(a, first, last); }
void layer_norm_backward(const NormBackward& a, int64_t first, int64_t last) { run<LayerBackward>(a, first, last); }

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {

TRIREME_DISPATCH_ROWS(rms_norm_forward, NormForward)
TRIREME_DISPATCH_ROWS(layer_norm_forward, NormForward)
TRIREME_DISPATCH_ROWS(rms_norm_backward, NormBackward)
TRIREME_DISPATCH_ROWS(layer_norm_backward, NormBackward)

}  // namespace trireme::ops
#endif  // HWY_ONCE
