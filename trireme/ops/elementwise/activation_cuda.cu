// Activations: one thread per chunk of neighbouring elements. Exponents are never positive, so that no exponential
// overflows.
#include "trireme/ops/cuda/rows-inl.h"
#include "trireme/ops/elementwise/parabolas.h"

namespace trireme::ops::cuda {
namespace {

template <class W>
struct Sigmoid {
  W value, complement;  ///< the complement is 1 - value, without cancellation
};

// For results in bfloat16 the approximate instructions are accurate enough: 1e-5.
template <class T>
__device__ Sigmoid<Arithmetic<T>> sigmoid(Arithmetic<T> z) {
  using W = Arithmetic<T>;
  W e, larger;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    e = __expf(-fabsf(z));
    larger = __fdividef(1, 1 + e);
  } else {
    e = exp(-fabs(z));
    larger = 1 / (1 + e);
  }
  const W smaller = e * larger;
  return z >= 0 ? Sigmoid<W>{larger, smaller} : Sigmoid<W>{smaller, larger};
}

/// An activation's value and its derivative.
template <class W>
struct Slope {
  W value, slope;
};

/// silu(x) = x s, silu'(x) = s + silu(x) (1 - s), where s = sigmoid(x).
template <class T>
struct Silu {
  using W = Arithmetic<T>;
  static __device__ W value(W x) { return x * sigmoid<T>(x).value; }
  static __device__ Slope<W> slope(W x) {
    const auto s = sigmoid<T>(x);
    const W silu = x * s.value;
    return {silu, s.value + silu * s.complement};
  }
};

/// gelu_tanh(x) = x s, s = sigmoid(z), where z = 2 sqrt(2/pi) (x + 0.044715 x^3). Its derivative is
/// s + x s (1 - s) z'(x).
template <class T>
struct Gelu {
  using W = Arithmetic<T>;
  static __device__ Sigmoid<W> sigmoid_of_angle(W x, W square) {
    return sigmoid<T>(x * (square * W(kGeluCubic) + W(kGeluLinear)));
  }
  static __device__ W value(W x) { return x * sigmoid_of_angle(x, x * x).value; }
  static __device__ Slope<W> slope(W x) {
    const W square = x * x;
    const auto s = sigmoid_of_angle(x, square);
    const W gelu = x * s.value;
    // For larger squares s (1 - s) is 0, and 0 times infinity would be NaN.
    const W bounded = square < W(1e6) ? square : W(1e6);
    const W angle_slope = bounded * W(3 * kGeluCubic) + W(kGeluLinear);
    return {gelu, s.value + gelu * s.complement * angle_slope};
  }
};

template <class T, int kSize, class Activation>
struct GatedForward {
  int64_t width;
  const T* gate_up;
  T* y;
  __device__ void operator()(int64_t row, int64_t k) const {
    const T* gate = gate_up + row * 2 * width + k * kSize;
    const auto g = load<kSize>(gate), u = load<kSize>(gate + width);
    Chunk<T, kSize> out;
    for (int i = 0; i < kSize; ++i) out.of[i] = to_storage<T>(Activation::value(to_wide(g.of[i])) * to_wide(u.of[i]));
    store(y + row * width + k * kSize, out);
  }
};

template <class T, int kSize, class Activation>
struct GatedBackward {
  int64_t width;
  T* gate_up;
  T* y;
  __device__ void operator()(int64_t row, int64_t k) const {
    T* gate = gate_up + row * 2 * width + k * kSize;
    T* at = y + row * width + k * kSize;
    auto g = load<kSize>(gate), u = load<kSize>(gate + width), dy = load<kSize>(at);
    for (int i = 0; i < kSize; ++i) {
      const auto a = Activation::slope(to_wide(g.of[i]));
      const auto up = to_wide(u.of[i]), d = to_wide(dy.of[i]);
      g.of[i] = to_storage<T>(d * up * a.slope);
      u.of[i] = to_storage<T>(d * a.value);
      dy.of[i] = to_storage<T>(a.value * up);
    }
    store(gate, g);
    store(gate + width, u);
    store(at, dy);
  }
};

template <class T, int kSize>
struct GeluForward {
  int64_t width;
  const T* x;
  T* y;
  __device__ void operator()(int64_t row, int64_t k) const {
    const int64_t at = row * width + k * kSize;
    auto v = load<kSize>(x + at);
    for (T& element : v.of) element = to_storage<T>(Gelu<T>::value(to_wide(element)));
    store(y + at, v);
  }
};

template <class T, int kSize>
struct GeluBackward {
  int64_t width;
  T* x;
  T* y;
  __device__ void operator()(int64_t row, int64_t k) const {
    const int64_t at = row * width + k * kSize;
    auto v = load<kSize>(x + at), dy = load<kSize>(y + at);
    for (int i = 0; i < kSize; ++i) {
      const auto a = Gelu<T>::slope(to_wide(v.of[i]));
      v.of[i] = to_storage<T>(to_wide(dy.of[i]) * a.slope);
      dy.of[i] = to_storage<T>(a.value);
    }
    store(x + at, v);
    store(y + at, dy);
  }
};

template <class T, int kSize>
struct Softcap {
  int64_t width;
  T* x;
  Arithmetic<T> cap, inverse;
  __device__ void operator()(int64_t row, int64_t k) const {
    T* at = x + row * width + k * kSize;
    auto v = load<kSize>(at);
    for (T& element : v.of) element = to_storage<T>(cap * tanh(to_wide(element) * inverse));
    store(at, v);
  }
};

template <template <class, int, class> class Kernel>
void gated(const char* what, const GatedArguments& a, int64_t rows) {
  with_chunks(
      a.dtype,
      [&]<class T, int kSize>() {
        auto *gate_up = static_cast<T*>(a.gate_up), *y = static_cast<T*>(a.y);
        if (a.activation == Activation::kSilu)
          for_each_chunk(what, rows, a.width / kSize, Kernel<T, kSize, Silu<T>>{a.width, gate_up, y});
        else
          for_each_chunk(what, rows, a.width / kSize, Kernel<T, kSize, Gelu<T>>{a.width, gate_up, y});
      },
      a.width, a.gate_up, a.y);
}

template <template <class, int> class Kernel>
void gelu(const char* what, const GeluArguments& a, int64_t rows) {
  with_chunks(
      a.dtype,
      [&]<class T, int kSize>() {
        for_each_chunk(what, rows, a.width / kSize,
                       Kernel<T, kSize>{a.width, static_cast<T*>(a.x), static_cast<T*>(a.y)});
      },
      a.width, a.x, a.y);
}

}  // namespace

void Kernels::gated_forward(const GatedArguments& arguments, int64_t rows) const {
  gated<GatedForward>("gated_forward", arguments, rows);
}
void Kernels::gated_backward(const GatedArguments& arguments, int64_t rows) const {
  gated<GatedBackward>("gated_backward", arguments, rows);
}
void Kernels::gelu_forward(const GeluArguments& arguments, int64_t rows) const { gelu<GeluForward>("gelu_forward", arguments, rows); }
void Kernels::gelu_backward(const GeluArguments& arguments, int64_t rows) const {
  gelu<GeluBackward>("gelu_backward", arguments, rows);
}

void Kernels::softcap(const SoftcapArguments& a, int64_t rows) const {
  with_chunks(
      a.dtype,
      [&]<class T, int kSize>() {
        using W = Arithmetic<T>;
        for_each_chunk("softcap", rows, a.width / kSize,
                       Softcap<T, kSize>{a.width, static_cast<T*>(a.x), static_cast<W>(a.cap),
                                         static_cast<W>(1 / a.cap)});
      },
      a.width, a.x);
}

}  // namespace trireme::ops::cuda
