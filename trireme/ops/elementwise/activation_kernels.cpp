#include "trireme/ops/elementwise/activation_kernels.h"

#include <type_traits>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/elementwise/activation_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/elementwise/activations-inl.h"
#include "trireme/ops/simd/loops-inl.h"
#include "trireme/ops/simd/math-inl.h"
#include "trireme/ops/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

constexpr int64_t kAhead = 2048;  // elements, in rows that follow each other without gaps

/// Not a lambda, because the compiler might not inline it.
template <class Activation>
struct Product {
  const Activation& activation;
  template <class V, size_t kCount>
  HWY_INLINE void operator()(V (&g)[kCount], const V (&u)[kCount]) const {
    activation.values(hn::DFromV<V>(), g);
    for (size_t k = 0; k < kCount; ++k) g[k] = hn::Mul(g[k], u[k]);
  }
};

template <class T, class Activation>
struct GatedForwardKernel {
  static void rows(const GatedArguments& args, int64_t first, int64_t last) {
    args.past_caches ? rows<kPastWay<T>>(args, first, last) : rows<Way::kCached>(args, first, last);
  }

  template <Way kWay>
  static void rows(const GatedArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    const Activation activation;
    for (int64_t t = first; t < last; ++t) {
      const T* gate = static_cast<const T*>(args.gate_up) + t * 2 * args.width;
      map_batches<kWay>(d, {args.width, 2 * args.width}, static_cast<T*>(args.y) + t * args.width,
                        Product<Activation>{activation}, gate, gate + args.width);
    }
    after<kWay>();
  }
};

template <class T, class Activation>
struct GatedBackwardKernel {
  static void rows(const GatedArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    const Activation activation;
    for (int64_t t = first; t < last; ++t) {
      T* gate = static_cast<T*>(args.gate_up) + t * 2 * args.width;
      T* up = gate + args.width;
      T* y = static_cast<T*>(args.y) + t * args.width;
      const int64_t i = batches(args.width, gate, up, y);
      map(
          d, {args.width - i, 2 * args.width}, outputs(gate + i, up + i, y + i),
          [=](auto g, auto u, auto dy) HWY_ATTR {
            const auto a = activation.slope(d, g);
            return values(hn::Mul(hn::Mul(dy, u), a.slope), hn::Mul(dy, a.value), hn::Mul(a.value, u));
          },
          gate + i, up + i, y + i);
    }
  }

  /// SiLU of bfloat16 with AVX-512, three lines at a time. Returns the number of elements done.
  static HWY_INLINE int64_t batches(int64_t width, T* gate, T* up, T* y) {
    int64_t i = 0;
#if TRIREME_OPS_AVX512
    if constexpr (kIsBfloat16<T> && std::is_same_v<Activation, Silu<T>>) {
      using D = WideTag<T>;
      using V = hn::Vec<D>;
      const D d;
      constexpr size_t kLines = 3;
      constexpr int64_t kStep = 2 * hn::MaxLanes(D()), kStride = kLines * kStep;
      constexpr std::make_index_sequence<kLines> kAllLines{};
      for (; i + kStride <= width; i += kStride) {
        for (int64_t k = i; k < i + kStride; k += kStep)
          fetch(gate + 2 * width + k), fetch(up + 2 * width + k), fetch(y + 2 * width + k);
        const auto gates = load_lines(d, gate + i, kAllLines), ups = load_lines(d, up + i, kAllLines),
                   dys = load_lines(d, y + i, kAllLines);
        V g[2 * kLines], s[2 * kLines];
        for (size_t k = 0; k < kLines; ++k) {
          const auto pair = split(d, gates.line[k]);
          g[2 * k] = pair.first, g[2 * k + 1] = pair.second;
        }
        for (size_t k = 0; k < 2 * kLines; ++k) s[k] = hn::Mul(g[k], hn::Set(d, kSigmoidScale<T>));
        sigmoids_of(d, s);
        for (size_t k = 0; k < 2 * kLines; ++k) g[k] = hn::Mul(g[k], s[k]);
        for (size_t k = 0; k < 2 * kLines; ++k) s[k] = hn::MulAdd(g[k], hn::Sub(hn::Set(d, 1), s[k]), s[k]);
        for (size_t k = 0; k < kLines; ++k) {
          const auto u = split(d, ups.line[k]), dy = split(d, dys.line[k]);
          const int64_t at = i + static_cast<int64_t>(k) * kStep;
          const Pair<V> value{g[2 * k], g[2 * k + 1]}, slope{s[2 * k], s[2 * k + 1]};
          store_pair(d,
                     Pair<V>{hn::Mul(hn::Mul(dy.first, u.first), slope.first),
                             hn::Mul(hn::Mul(dy.second, u.second), slope.second)},
                     gate + at);
          store_pair(d, Pair<V>{hn::Mul(dy.first, value.first), hn::Mul(dy.second, value.second)}, up + at);
          store_pair(d, Pair<V>{hn::Mul(value.first, u.first), hn::Mul(value.second, u.second)}, y + at);
        }
      }
    }
#endif
    return i;
  }
};

template <class T>
struct GeluForward {
  static void rows(const GeluArguments& args, int64_t first, int64_t last) {
    args.past_caches ? rows<kPastWay<T>>(args, first, last) : rows<Way::kCached>(args, first, last);
  }

  template <Way kWay>
  static void rows(const GeluArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    const Gelu<T> gelu;
    for (int64_t t = first; t < last; ++t) {
      const T* x = static_cast<const T*>(args.x) + t * args.width;
      T* y = static_cast<T*>(args.y) + t * args.width;
      map_batches<kWay>(d, args.width, y, [&](auto& v) HWY_ATTR { gelu.values(d, v); }, x);
    }
    after<kWay>();
  }
};

template <class T>
struct GeluBackward {
  static void rows(const GeluArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    const Gelu<T> gelu;
    for (int64_t t = first; t < last; ++t) {
      T* x = static_cast<T*>(args.x) + t * args.width;
      T* y = static_cast<T*>(args.y) + t * args.width;
      map(
          d, {args.width, kAhead}, outputs(x, y),
          [=](auto v, auto dy) HWY_ATTR {
            const auto a = gelu.slope(d, v);
            return values(hn::Mul(dy, a.slope), a.value);
          },
          x, y);
    }
  }
};

template <class T>
struct Softcap {
  static void rows(const SoftcapArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    const Capped<T> capped(args.cap);
    for (int64_t t = first; t < last; ++t) {
      T* x = static_cast<T*>(args.x) + t * args.width;
      map_batches(d, {args.width, kAhead}, x, [&](auto& v) HWY_ATTR { capped.values(v); }, x);
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

TRIREME_DISPATCH_ROWS(gated_forward, GatedArguments)
TRIREME_DISPATCH_ROWS(gated_backward, GatedArguments)
TRIREME_DISPATCH_ROWS(gelu_forward, GeluArguments)
TRIREME_DISPATCH_ROWS(gelu_backward, GeluArguments)
TRIREME_DISPATCH_ROWS(softcap, SoftcapArguments)

}  // namespace trireme::ops
#endif  // HWY_ONCE
