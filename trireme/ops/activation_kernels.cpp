#include "trireme/ops/activation_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/activation_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd-inl.h"
#include "trireme/ops/simd_loops-inl.h"
#include "trireme/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

/// An activation's value and its derivative.
template <class V>
struct Slope {
  V value, slope;
};

/// silu(x) = x s, silu'(x) = s + silu(x) (1 - s), where s = sigmoid(x).
template <class T>
struct Silu {
  template <class D, class V>
  static HWY_INLINE V value(D d, V x) {
    return hn::Mul(x, sigmoid<T>(d, x).value);
  }
  template <class D, class V>
  static HWY_INLINE Slope<V> slope(D d, V x) {
    const auto s = sigmoid<T>(d, x);
    const V silu = hn::Mul(x, s.value);
    return {silu, hn::MulAdd(silu, s.complement, s.value)};
  }
};

/// gelu_tanh(x) = x/2 (1 + tanh(z/2)) = x s, s = sigmoid(z), where z = 2 sqrt(2/pi) (x + 0.044715 x^3). Its derivative
/// is s + x s (1 - s) z'(x).
template <class T>
struct Gelu {
  static constexpr double kLinear = 1.5957691216057307117597842397375;
  static constexpr double kCubic = 0.044715 * kLinear;

  template <class D, class V>
  static HWY_INLINE Sigmoid<V> sigmoid_of_angle(D d, V x, V square) {
    const V cubic = hn::Set(d, kCubic * kSigmoidScale<T>), linear = hn::Set(d, kLinear * kSigmoidScale<T>);
    return sigmoid_of<T>(d, hn::Mul(x, hn::MulAdd(square, cubic, linear)));
  }
  template <class D, class V>
  static HWY_INLINE V value(D d, V x) {
    return hn::Mul(x, sigmoid_of_angle(d, x, hn::Mul(x, x)).value);
  }
  template <class D, class V>
  static HWY_INLINE Slope<V> slope(D d, V x) {
    const V square = hn::Mul(x, x);
    const auto s = sigmoid_of_angle(d, x, square);
    const V angle_slope = hn::MulAdd(square, hn::Set(d, 3 * kCubic), hn::Set(d, kLinear));
    const V gelu = hn::Mul(x, s.value);
    return {gelu, hn::MulAdd(hn::Mul(gelu, s.complement), angle_slope, s.value)};
  }
};

template <class T, class Activation>
struct GatedForwardKernel {
  static void rows(const GatedArguments& args, int64_t first, int64_t last) {
    args.past_caches ? rows<Way::kPastCaches>(args, first, last) : rows<Way::kCached>(args, first, last);
  }

  template <Way kWay>
  static void rows(const GatedArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    for (int64_t t = first; t < last; ++t) {
      const T* gate = static_cast<const T*>(args.gate_up) + t * 2 * args.width;
      map(
          d, {args.width, 2 * args.width}, outputs<kWay>(static_cast<T*>(args.y) + t * args.width),
          [=](auto g, auto u) HWY_ATTR { return values(hn::Mul(Activation::value(d, g), u)); }, gate,
          gate + args.width);
    }
    after<kWay>();
  }
};

template <class T, class Activation>
struct GatedBackwardKernel {
  static void rows(const GatedArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    for (int64_t t = first; t < last; ++t) {
      T* gate = static_cast<T*>(args.gate_up) + t * 2 * args.width;
      T* up = gate + args.width;
      T* y = static_cast<T*>(args.y) + t * args.width;
      map(
          d, {args.width, 2 * args.width}, outputs(gate, up, y),
          [=](auto g, auto u, auto dy) HWY_ATTR {
            const auto a = Activation::slope(d, g);
            return values(hn::Mul(hn::Mul(dy, u), a.slope), hn::Mul(dy, a.value), hn::Mul(a.value, u));
          },
          gate, up, y);
    }
  }
};

template <class T>
struct GeluForward {
  static void rows(const GeluArguments& args, int64_t first, int64_t last) {
    args.past_caches ? rows<Way::kPastCaches>(args, first, last) : rows<Way::kCached>(args, first, last);
  }

  template <Way kWay>
  static void rows(const GeluArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    for (int64_t t = first; t < last; ++t) {
      map(
          d, args.width, outputs<kWay>(static_cast<T*>(args.y) + t * args.width),
          [=](auto x) HWY_ATTR { return values(Gelu<T>::value(d, x)); },
          static_cast<const T*>(args.x) + t * args.width);
    }
    after<kWay>();
  }
};

template <class T>
struct GeluBackward {
  static void rows(const GeluArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    for (int64_t t = first; t < last; ++t) {
      T* x = static_cast<T*>(args.x) + t * args.width;
      T* y = static_cast<T*>(args.y) + t * args.width;
      map(
          d, args.width, outputs(x, y),
          [=](auto v, auto dy) HWY_ATTR {
            const auto a = Gelu<T>::slope(d, v);
            return values(hn::Mul(dy, a.slope), a.value);
          },
          x, y);
    }
  }
};

template <class T>
struct Softcap {
  static void rows(const SoftcapArguments& args, int64_t first, int64_t last) {
    using W = Wide<T>;
    const WideTag<T> d;
    const auto cap = hn::Set(d, W(args.cap)), inverse = hn::Set(d, W(1 / args.cap));
    for (int64_t t = first; t < last; ++t) {
      T* x = static_cast<T*>(args.x) + t * args.width;
      map(
          d, args.width, outputs(x),
          [=](auto v) HWY_ATTR { return values(hn::Mul(cap, tangent<T>(d, hn::Mul(v, inverse)))); }, x);
    }
  }
};

template <class T>
using SwigluForward = GatedForwardKernel<T, Silu<T>>;
template <class T>
using SwigluBackward = GatedBackwardKernel<T, Silu<T>>;
template <class T>
using GegluForward = GatedForwardKernel<T, Gelu<T>>;
template <class T>
using GegluBackward = GatedBackwardKernel<T, Gelu<T>>;

void gated_forward(const GatedArguments& a, int64_t first, int64_t last) {
  a.activation == Activation::kSilu ? run<SwigluForward>(a, first, last) : run<GegluForward>(a, first, last);
}
void gated_backward(const GatedArguments& a, int64_t first, int64_t last) {
  a.activation == Activation::kSilu ? run<SwigluBackward>(a, first, last) : run<GegluBackward>(a, first, last);
}
void gelu_forward(const GeluArguments& a, int64_t first, int64_t last) { run<GeluForward>(a, first, last); }
void gelu_backward(const GeluArguments& a, int64_t first, int64_t last) { run<GeluBackward>(a, first, last); }
void softcap(const SoftcapArguments& a, int64_t first, int64_t last) { run<Softcap>(a, first, last); }

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {

HWY_EXPORT(gated_forward);
HWY_EXPORT(gated_backward);
HWY_EXPORT(gelu_forward);
HWY_EXPORT(gelu_backward);
HWY_EXPORT(softcap);

void gated_forward_rows(const GatedArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(gated_forward)(a, first, last);
}
void gated_backward_rows(const GatedArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(gated_backward)(a, first, last);
}
void gelu_forward_rows(const GeluArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(gelu_forward)(a, first, last);
}
void gelu_backward_rows(const GeluArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(gelu_backward)(a, first, last);
}
void softcap_rows(const SoftcapArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(softcap)(a, first, last);
}

}  // namespace trireme::ops
#endif  // HWY_ONCE
