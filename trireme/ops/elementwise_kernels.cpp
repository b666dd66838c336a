#include "trireme/ops/elementwise_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/elementwise_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

template <class T>
struct Add {
  static void rows(const AddArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    for (int64_t t = first; t < last; ++t) {
      const T* a = static_cast<const T*>(args.a) + t * args.width;
      const T* b = static_cast<const T*>(args.b) + t * args.b_stride;
      T* y = static_cast<T*>(args.y) + t * args.width;
      each_vector(d, args.width, [&](int64_t i, auto n) HWY_ATTR {
        store(d, hn::Add(load(d, a + i, n), load(d, b + i, n)), y + i, n);
      });
    }
  }
};

template <class T>
struct SumColumns {
  static void rows(const ColumnSum& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    auto* sum = static_cast<Wide<T>*>(args.sum);
    for (int64_t t = first; t < last; ++t) {
      const T* x = static_cast<const T*>(args.x) + t * args.width;
      each_vector(d, args.width, [&](int64_t i, auto n) HWY_ATTR {
        store(d, hn::Add(load(d, sum + i, n), load(d, x + i, n)), sum + i, n);
      });
    }
  }
};

template <class T>
struct SumGathered {
  static void rows(const GatherSum& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    const T* from = static_cast<const T*>(args.rows);
    for (int64_t v = first; v < last; ++v) {
      T* out = static_cast<T*>(args.out) + v * args.width;
      each_vector(d, args.width, [&](int64_t i, auto n) HWY_ATTR {
        auto sum = hn::Zero(d);
        for (int64_t k = args.first[v]; k < args.first[v + 1]; ++k)
          sum = hn::Add(sum, load(d, from + args.order[k] * args.width + i, n));
        store(d, sum, out + i, n);
      });
    }
  }
};

template <class T>
struct SwigluForward {
  static void rows(const SwigluArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    for (int64_t t = first; t < last; ++t) {
      const T* gate = static_cast<const T*>(args.gate_up) + t * 2 * args.width;
      const T* up = gate + args.width;
      T* y = static_cast<T*>(args.y) + t * args.width;
      each_vector(d, args.width, [&](int64_t i, auto n) HWY_ATTR {
        const auto g = load(d, gate + i, n);
        store(d, hn::Mul(hn::Mul(g, sigmoid(d, g).value), load(d, up + i, n)), y + i, n);
      });
    }
  }
};

/// silu(g) = g s, silu'(g) = s (1 + g (1 - s)), where s = sigmoid(g).
template <class T>
struct SwigluBackward {
  static void rows(const SwigluArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    const auto one = hn::Set(d, 1);
    for (int64_t t = first; t < last; ++t) {
      T* gate = static_cast<T*>(args.gate_up) + t * 2 * args.width;
      T* up = gate + args.width;
      T* y = static_cast<T*>(args.y) + t * args.width;
      each_vector(d, args.width, [&](int64_t i, auto n) HWY_ATTR {
        const auto g = load(d, gate + i, n);
        const auto u = load(d, up + i, n);
        const auto dy = load(d, y + i, n);
        const auto s = sigmoid(d, g);
        const auto silu = hn::Mul(g, s.value);
        const auto slope = hn::Mul(s.value, hn::MulAdd(g, s.complement, one));
        store(d, hn::Mul(hn::Mul(dy, u), slope), gate + i, n);
        store(d, hn::Mul(dy, silu), up + i, n);
        store(d, hn::Mul(silu, u), y + i, n);
      });
    }
  }
};

// gelu_tanh(x) = x/2 (1 + tanh(z/2)) = x sigmoid(z), where z = 2 sqrt(2/pi) (x + 0.044715 x^3).
constexpr double kGeluLinear = 1.5957691216057307117597842397375;
constexpr double kGeluCubic = 0.044715 * kGeluLinear;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_angle(D d, V x) {
  const V slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, kGeluCubic), hn::Set(d, kGeluLinear));
  return hn::Mul(x, slope);
}

template <class T>
struct GeluForward {
  static void rows(const GeluArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    for (int64_t t = first; t < last; ++t) {
      const T* x = static_cast<const T*>(args.x) + t * args.width;
      T* y = static_cast<T*>(args.y) + t * args.width;
      each_vector(d, args.width, [&](int64_t i, auto n) HWY_ATTR {
        const auto v = load(d, x + i, n);
        store(d, hn::Mul(v, sigmoid(d, gelu_angle(d, v)).value), y + i, n);
      });
    }
  }
};

template <class T>
struct GeluBackward {
  static void rows(const GeluArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    for (int64_t t = first; t < last; ++t) {
      T* x = static_cast<T*>(args.x) + t * args.width;
      T* y = static_cast<T*>(args.y) + t * args.width;
      each_vector(d, args.width, [&](int64_t i, auto n) HWY_ATTR {
        const auto v = load(d, x + i, n);
        const auto dy = load(d, y + i, n);
        const auto s = sigmoid(d, gelu_angle(d, v));
        const auto angle_slope = hn::MulAdd(hn::Mul(v, v), hn::Set(d, 3 * kGeluCubic), hn::Set(d, kGeluLinear));
        const auto bend = hn::Mul(hn::Mul(v, s.complement), angle_slope);
        store(d, hn::Mul(dy, hn::MulAdd(s.value, bend, s.value)), x + i, n);
        store(d, hn::Mul(v, s.value), y + i, n);
      });
    }
  }
};

/// Half-split pairs: (x_i, x_{i + d/2}) -> (x_i c - x_{i+d/2} s, x_{i+d/2} c + x_i s) for each rotated head.
template <class T>
struct Rotate {
  static void rows(const RotaryArguments& args, int64_t first, int64_t last) {
    using W = Wide<T>;
    const WideTag<T> d;
    const int64_t half = args.half_dim;
    const auto sign = hn::Set(d, args.inverse ? W(-1) : W(1));
    for (int64_t t = first; t < last; ++t) {
      const int64_t position = t % args.sequence;
      const W* cosine = static_cast<const W*>(args.cosine) + position * half;
      const W* sine = static_cast<const W*>(args.sine) + position * half;
      T* row = static_cast<T*>(args.qkv) + t * args.row_width;
      for (int64_t head = 0; head < args.num_rotated_heads; ++head) {
        T* low = row + head * 2 * half;
        T* high = low + half;
        each_vector(d, half, [&](int64_t i, auto n) HWY_ATTR {
          const auto c = load(d, cosine + i, n);
          const auto s = hn::Mul(sign, load(d, sine + i, n));
          const auto a = load(d, low + i, n);
          const auto b = load(d, high + i, n);
          store(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), low + i, n);
          store(d, hn::MulAdd(a, s, hn::Mul(b, c)), high + i, n);
        });
      }
    }
  }
};

void add(const AddArguments& a, int64_t first, int64_t last) { run<Add>(a, first, last); }
void column_sum(const ColumnSum& a, int64_t first, int64_t last) { run<SumColumns>(a, first, last); }
void gather_sum(const GatherSum& a, int64_t first, int64_t last) { run<SumGathered>(a, first, last); }
void swiglu_fwd(const SwigluArguments& a, int64_t first, int64_t last) { run<SwigluForward>(a, first, last); }
void swiglu_bwd(const SwigluArguments& a, int64_t first, int64_t last) { run<SwigluBackward>(a, first, last); }
void gelu_fwd(const GeluArguments& a, int64_t first, int64_t last) { run<GeluForward>(a, first, last); }
void gelu_bwd(const GeluArguments& a, int64_t first, int64_t last) { run<GeluBackward>(a, first, last); }
void rotate(const RotaryArguments& a, int64_t first, int64_t last) { run<Rotate>(a, first, last); }

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {

HWY_EXPORT(add);
HWY_EXPORT(column_sum);
HWY_EXPORT(gather_sum);
HWY_EXPORT(swiglu_fwd);
HWY_EXPORT(swiglu_bwd);
HWY_EXPORT(gelu_fwd);
HWY_EXPORT(gelu_bwd);
HWY_EXPORT(rotate);

void add_rows(const AddArguments& a, int64_t first, int64_t last) { HWY_DYNAMIC_DISPATCH(add)(a, first, last); }
void column_sum_rows(const ColumnSum& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(column_sum)(a, first, last);
}
void gather_sum_rows(const GatherSum& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(gather_sum)(a, first, last);
}
void swiglu_forward_rows(const SwigluArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(swiglu_fwd)(a, first, last);
}
void swiglu_backward_rows(const SwigluArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(swiglu_bwd)(a, first, last);
}
void gelu_forward_rows(const GeluArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(gelu_fwd)(a, first, last);
}
void gelu_backward_rows(const GeluArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(gelu_bwd)(a, first, last);
}
void rotary_rows(const RotaryArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(rotate)(a, first, last);
}

}  // namespace trireme::ops
#endif  // HWY_ONCE
