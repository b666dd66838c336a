#include "trireme/ops/activation_kernels.h"

#include <type_traits>

#include "trireme/ops/parabolas.h"

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
  HWY_INLINE V value(D d, V x) const {
    return hn::Mul(x, sigmoid<T>(d, x).value);
  }
  template <class D, class V>
  HWY_INLINE Slope<V> slope(D d, V x) const {
    const auto s = sigmoid<T>(d, x);
    const V silu = hn::Mul(x, s.value);
    return {silu, hn::MulAdd(silu, s.complement, s.value)};
  }
};

/// gelu_tanh(x) = x/2 (1 + tanh(z/2)) = x s, s = sigmoid(z), where z = 2 sqrt(2/pi) (x + 0.044715 x^3). Its derivative
/// is s + x s (1 - s) z'(x).
template <class T, class = void>
struct Gelu {
  template <class D, class V>
  static HWY_INLINE Sigmoid<V> sigmoid_of_angle(D d, V x, V square) {
    const V cubic = hn::Set(d, kGeluCubic * kSigmoidScale<T>), linear = hn::Set(d, kGeluLinear * kSigmoidScale<T>);
    return sigmoid_of<T>(d, hn::Mul(x, hn::MulAdd(square, cubic, linear)));
  }
  template <class D, class V>
  HWY_INLINE V value(D d, V x) const {
    return hn::Mul(x, sigmoid_of_angle(d, x, hn::Mul(x, x)).value);
  }
  template <class D, class V, size_t kCount>
  HWY_INLINE void values(D d, V (&x)[kCount]) const {
    for (V& v : x) v = value(d, v);
  }
  template <class D, class V>
  HWY_INLINE Slope<V> slope(D d, V x) const {
    const V square = hn::Mul(x, x);
    const auto s = sigmoid_of_angle(d, x, square);
    const V angle_slope = hn::MulAdd(square, hn::Set(d, 3 * kGeluCubic), hn::Set(d, kGeluLinear));
    const V gelu = hn::Mul(x, s.value);
    return {gelu, hn::MulAdd(hn::Mul(gelu, s.complement), angle_slope, s.value)};
  }
};

#if TRIREME_OPS_AVX512
/// A function by parabolas.h.
template <class T>
struct LookedUp {
  using D = WideTag<T>;
  using V = hn::Vec<D>;

  explicit HWY_INLINE LookedUp(const Parabolas& table) {
    const float* from[] = {table.constant, table.linear, table.square};
    for (int k = 0; k < 3; ++k) low[k] = hn::Load(D(), from[k]), high[k] = hn::Load(D(), from[k] + hn::MaxLanes(D()));
  }

  /// a in [0, Parabolas::kEnd], or NaN.
  HWY_INLINE V of(D d, V a) const {
    const V piece = piece_of(d, a);
    return hn::MulAdd(hn::MulAdd(coefficient(2, piece), a, coefficient(1, piece)), a, coefficient(0, piece));
  }
  /// Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  static HWY_INLINE V piece_of(D d, V a) {
    return hn::MulAdd(a, hn::Set(d, Parabolas::kPiecesPerUnit), hn::Set(d, 12582912.0f));
  }
  HWY_INLINE V coefficient(int k, V piece) const {
    return V{_mm512_permutex2var_ps(low[k].raw, _mm512_castps_si512(piece.raw), high[k].raw)};
  }
  V low[3], high[3];
};

/// |x| up to where the parabolas end; a NaN stays one.
template <class D, class V>
HWY_INLINE V bounded(D d, V x) {
  return V{_mm512_maskz_min_ps(kAll, hn::Set(d, Parabolas::kEnd).raw, hn::Abs(x).raw)};  // the second where one is NaN
}

/// By parabolas.h. The derivative for x <= 0 is t - a t (1 - t) z'(a), and 1 less that of -x for others.
template <class T>
struct Gelu<T, std::enable_if_t<kIsBfloat16<T>>> {
  using D = WideTag<T>;
  using V = hn::Vec<D>;

  HWY_INLINE Gelu() : tail(gelu_tail()) {}

  HWY_INLINE V value(D d, V x) const {
    const V a = magnitude(d, x);
    return hn::NegMulAdd(a, tail.of(d, a), at_least_zero(d, x));
  }
  /// value() of each, step by step for all of them: the processor finds more to do at once (Zen 4: a tenth faster).
  template <size_t kCount>
  HWY_INLINE void values(D d, V (&x)[kCount]) const {
    V a[kCount], piece[kCount], t[kCount];
    for (size_t i = 0; i < kCount; ++i) a[i] = magnitude(d, x[i]);
    for (size_t i = 0; i < kCount; ++i) x[i] = at_least_zero(d, x[i]);
    for (size_t i = 0; i < kCount; ++i) piece[i] = tail.piece_of(d, a[i]);
    for (size_t i = 0; i < kCount; ++i) t[i] = tail.coefficient(2, piece[i]);
    for (size_t i = 0; i < kCount; ++i) t[i] = hn::MulAdd(t[i], a[i], tail.coefficient(1, piece[i]));
    for (size_t i = 0; i < kCount; ++i) t[i] = hn::MulAdd(t[i], a[i], tail.coefficient(0, piece[i]));
    for (size_t i = 0; i < kCount; ++i) x[i] = hn::NegMulAdd(a[i], t[i], x[i]);
  }
  HWY_INLINE Slope<V> slope(D d, V x) const {
    const V a = bounded(d, x);
    const V t = tail.of(d, a), product = hn::Mul(a, t);
    const V angle_slope = hn::MulAdd(hn::Mul(a, a), hn::Set(d, 3 * kGeluCubic), hn::Set(d, kGeluLinear));
    const V falling = hn::NegMulAdd(hn::NegMulAdd(product, t, product), angle_slope, t);
    const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(x.raw));
    return {hn::Sub(at_least_zero(d, x), product),
            V{_mm512_mask_sub_ps(falling.raw, _knot_mask16(negative), _mm512_set1_ps(1), falling.raw)}};
  }

 private:
  /// |x| up to where the table ends; a NaN is not kept.
  static HWY_INLINE V magnitude(D d, V x) {
    return V{_mm512_maskz_range_ps(kAll, x.raw, hn::Set(d, Parabolas::kEnd).raw, 0b1010)};
  }
  static HWY_INLINE V at_least_zero(D, V x) { return V{_mm512_maskz_max_ps(kAll, _mm512_setzero_ps(), x.raw)}; }

  LookedUp<T> tail;
};
#endif

template <class T, class Activation>
struct GatedForwardKernel {
  static void rows(const GatedArguments& args, int64_t first, int64_t last) {
    args.past_caches ? rows<Way::kPastCaches>(args, first, last) : rows<Way::kCached>(args, first, last);
  }

  template <Way kWay>
  static void rows(const GatedArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    const Activation activation;
    for (int64_t t = first; t < last; ++t) {
      const T* gate = static_cast<const T*>(args.gate_up) + t * 2 * args.width;
      map(
          d, {args.width, 2 * args.width}, outputs<kWay>(static_cast<T*>(args.y) + t * args.width),
          [=](auto g, auto u) HWY_ATTR { return values(hn::Mul(activation.value(d, g), u)); }, gate, gate + args.width);
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
      map(
          d, {args.width, 2 * args.width}, outputs(gate, up, y),
          [=](auto g, auto u, auto dy) HWY_ATTR {
            const auto a = activation.slope(d, g);
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
    const Gelu<T> gelu;
    for (int64_t t = first; t < last; ++t) {
      const T* x = static_cast<const T*>(args.x) + t * args.width;
      T* y = static_cast<T*>(args.y) + t * args.width;
      const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
      int64_t i = 0;
      for (; i + 4 * step <= args.width; i += 4 * step) {
        const auto lines = load_lines(d, x + i, std::make_index_sequence<4>{});
        for (int64_t k = 0; k < 4; k += 2) {
          const auto a = split(d, lines.line[k]), b = split(d, lines.line[k + 1]);
          hn::Vec<decltype(d)> v[] = {a.first, a.second, b.first, b.second};
          gelu.values(d, v);
          store_pair<kWay>(d, Pair<hn::Vec<decltype(d)>>{v[0], v[1]}, y + i + k * step);
          store_pair<kWay>(d, Pair<hn::Vec<decltype(d)>>{v[2], v[3]}, y + i + (k + 1) * step);
        }
      }
      map(d, args.width - i, outputs<kWay>(y + i), [=](auto v) HWY_ATTR { return values(gelu.value(d, v)); }, x + i);
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
          d, args.width, outputs(x, y),
          [=](auto v, auto dy) HWY_ATTR {
            const auto a = gelu.slope(d, v);
            return values(hn::Mul(dy, a.slope), a.value);
          },
          x, y);
    }
  }
};

/// tanh(x) for what is rounded to T.
template <class T, class = void>
struct Tangent {
  template <class D, class V>
  HWY_INLINE V of(D d, V x) const {
    return tangent<T>(d, x);
  }
};
#if TRIREME_OPS_AVX512
template <class T>
struct Tangent<T, std::enable_if_t<kIsBfloat16<T>>> {
  HWY_INLINE Tangent() : ratio(tanh_ratio()) {}
  template <class D, class V>
  HWY_INLINE V of(D d, V x) const {
    const V a = bounded(d, x);
    return hn::CopySignToAbs(hn::Mul(a, ratio.of(d, a)), x);
  }
  LookedUp<T> ratio;
};
#endif

template <class T>
struct Softcap {
  static void rows(const SoftcapArguments& args, int64_t first, int64_t last) {
    using W = Wide<T>;
    const WideTag<T> d;
    const Tangent<T> tangent;
    const auto cap = hn::Set(d, W(args.cap)), inverse = hn::Set(d, W(1 / args.cap));
    for (int64_t t = first; t < last; ++t) {
      T* x = static_cast<T*>(args.x) + t * args.width;
      map(
          d, args.width, outputs(x),
          [=](auto v) HWY_ATTR { return values(hn::Mul(cap, tangent.of(d, hn::Mul(v, inverse)))); }, x);
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
