// The activations of plain MLPs that few models use: the exact GELU (GPT-NeoX) and ReLU. Plain loops.
#include <ATen/OpMathType.h>

#include <cmath>
#include <numbers>

#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

template <class W>
struct ExactGelu {
  static W cumulative(W x) { return W(0.5) * (1 + std::erf(x * W(std::numbers::sqrt2 / 2))); }
  static W value(W x) { return x * cumulative(x); }
  static W slope(W x) {
    constexpr W kDensity = W(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return cumulative(x) + x * kDensity * std::exp(W(-0.5) * x * x);
  }
};

template <class W>
struct Relu {  // NaN stays NaN
  static W value(W x) { return x < 0 ? W(0) : x; }
  static W slope(W x) { return x > 0 ? W(1) : W(0); }
};

template <class T, template <class> class Activation>
void run_plain(const at::Tensor& x, const at::Tensor& y, bool backward) {
  using W = at::opmath_type<T>;
  T *at_x = x.data_ptr<T>(), *at_y = y.data_ptr<T>();
  const int64_t width = x.size(1);
  parallel_rows(x.size(0), row_grain(width), [&](int64_t first, int64_t last) {
    for (int64_t i = first * width; i < last * width; ++i) {
      const W v = static_cast<W>(at_x[i]);
      if (backward) at_x[i] = static_cast<T>(static_cast<W>(at_y[i]) * Activation<W>::slope(v));
      at_y[i] = static_cast<T>(Activation<W>::value(v));
    }
  });
}

template <template <class> class Activation>
void run_plain(at::ScalarType dtype, const at::Tensor& x, const at::Tensor& y, bool backward) {
  if (dtype == at::kDouble) return run_plain<double, Activation>(x, y, backward);
  if (dtype == at::kBFloat16) return run_plain<at::BFloat16, Activation>(x, y, backward);
  if (dtype == at::kHalf) return run_plain<at::Half, Activation>(x, y, backward);
  run_plain<float, Activation>(x, y, backward);
}

void run_plain(const char* operation, PlainActivation activation, const at::Tensor& x, const char* y_name,
               const at::Tensor& y, bool backward) {
  const auto dtype = compute_dtype(operation, "x", x);
  check_dims(operation, "x", x, 2);
  check_tensor(operation, "x", x, x.sizes(), dtype);
  check_tensor(operation, y_name, y, x.sizes(), dtype);
  activation == PlainActivation::kRelu ? run_plain<Relu>(dtype, x, y, backward)
                                       : run_plain<ExactGelu>(dtype, x, y, backward);
}

}  // namespace

void plain_forward(PlainActivation activation, const at::Tensor& y, const at::Tensor& x) {
  run_plain("plain_forward", activation, x, "y", y, false);
}

void plain_backward(PlainActivation activation, const at::Tensor& x, const at::Tensor& dy) {
  run_plain("plain_backward", activation, x, "dy", dy, true);
}

}  // namespace trireme::ops
