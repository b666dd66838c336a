// The activations of plain MLPs that few models use: the exact GELU (GPT-NeoX) and ReLU. The kernels are chosen for the
// processor at run time.
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/storage.h"

#include <cmath>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/elementwise/plain_activation.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd/loops-inl.h"
#include "trireme/ops/simd/math-inl.h"
#include "trireme/ops/simd/simd-inl.h"

#ifndef TRIREME_OPS_PLAIN_ARGUMENTS_
#define TRIREME_OPS_PLAIN_ARGUMENTS_
namespace trireme::ops {
struct PlainArguments {
  PlainActivation activation;
  bool backward;
  Storage dtype;
  int64_t width;
  void* x;  ///< backward: its gradient on return
  void* y;  ///< backward: dy on entry
};
}  // namespace trireme::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

/// erf(x). For float32 an odd rational function within 3e-7, which is 1 from 4 on.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V error_function(D d, V x) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    HWY_ALIGN double lanes[hn::MaxLanes(d)];
    hn::Store(x, d, lanes);
    for (double& lane : lanes) lane = std::erf(lane);
    return hn::Load(d, lanes);
  } else {
    constexpr float kEnd = 4;
    const V a = hn::Min(hn::Abs(x), hn::Set(d, kEnd)), square = hn::Mul(a, a);
    const V above =
        polynomial(d, square, -1.60960333262415e-02f, -2.95459980854025e-03f, -7.34990630326855e-04f,
                   -5.69250639462346e-05f, -2.10102402082508e-06f, 2.77068142495902e-08f, -2.72614225801306e-10f);
    const V below = polynomial(d, square, -1.42647390514189e-02f, -7.37332916720468e-03f, -1.68282697438203e-03f,
                               -2.13374055278905e-04f, -1.45660718464996e-05f);
    const V inside = hn::Div(hn::Mul(a, above), below);
    return hn::CopySign(hn::IfThenElse(hn::Lt(a, hn::Set(d, kEnd)), inside, hn::Set(d, 1)), x);
  }
}

/// x P(x) with the normal distribution's P(x) = (1 + erf(x / sqrt 2)) / 2. The derivative is P(x) + x p(x).
template <class T>
struct ExactGelu {
  template <class D, class V>
  static HWY_INLINE V cumulative(D d, V x) {
    const V half = hn::Set(d, hn::TFromD<D>(0.5));
    return hn::MulAdd(half, error_function(d, hn::Mul(x, hn::Set(d, hn::TFromD<D>(std::numbers::sqrt2 / 2)))), half);
  }
  template <class D, class V>
  static HWY_INLINE V value(D d, V x) {
    return hn::Mul(x, cumulative(d, x));
  }
  template <class D, class V>
  static HWY_INLINE V slope(D d, V x) {
    const V density = exponential<T>(d, hn::Mul(hn::Mul(x, x), hn::Set(d, hn::TFromD<D>(-0.5))));
    constexpr auto kFactor = hn::TFromD<D>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return hn::MulAdd(hn::Mul(x, hn::Set(d, kFactor)), density, cumulative(d, x));
  }
};

template <class T>
struct Relu {  // NaN stays NaN
  template <class D, class V>
  static HWY_INLINE V value(D d, V x) {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
  }
  template <class D, class V>
  static HWY_INLINE V slope(D d, V x) {
    return hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1));
  }
};

template <class T, template <class> class Function>
void plain_elements(const PlainArguments& a, int64_t first, int64_t last) {
  constexpr int64_t kAhead = 2048;
  const WideTag<T> d;
  T *x = static_cast<T*>(a.x) + first * a.width, *y = static_cast<T*>(a.y) + first * a.width;
  const Extent all((last - first) * a.width, kAhead);
  if (a.backward)
    map(
        d, all, outputs(x, y),
        [=](auto v, auto dy)
            HWY_ATTR { return values(hn::Mul(dy, Function<T>::slope(d, v)), Function<T>::value(d, v)); },
        x, y);
  else
    map(d, all, outputs(y), [=](auto v) HWY_ATTR { return values(Function<T>::value(d, v)); }, x);
}

template <class T>
struct PlainKernel {
  static void rows(const PlainArguments& a, int64_t first, int64_t last) {
    a.activation == PlainActivation::kRelu ? plain_elements<T, Relu>(a, first, last)
                                           : plain_elements<T, ExactGelu>(a, first, last);
  }
};

void plain_activation(const PlainArguments& a, int64_t first, int64_t last) { run<PlainKernel>(a, first, last); }

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {
namespace {

TRIREME_DISPATCH_ROWS(plain_activation, PlainArguments)

void run_plain(const char* operation, PlainActivation activation, const at::Tensor& x, const char* y_name,
               const at::Tensor& y, bool backward) {
  const auto dtype = compute_dtype(operation, "x", x);
  check_dims(operation, "x", x, 2);
  check_tensor(operation, "x", x, x.sizes(), dtype);
  check_tensor(operation, y_name, y, x.sizes(), dtype);
  const Announced announced([&] { return row_operation(operation, dtype, x.size(0), x.size(1), {&x, &y}); });
  if (announced.skipped()) return;
  const PlainArguments arguments{activation,          backward, storage_of(dtype), x.size(1), x.mutable_data_ptr(),
                                 y.mutable_data_ptr()};
  run_rows(plain_activation_rows, arguments, x.size(0), x.size(1));
}

}  // namespace

void plain_forward(PlainActivation activation, const at::Tensor& y, const at::Tensor& x) {
  run_plain("plain_forward", activation, x, "y", y, false);
}

void plain_backward(PlainActivation activation, const at::Tensor& x, const at::Tensor& dy) {
  run_plain("plain_backward", activation, x, "dy", dy, true);
}

}  // namespace trireme::ops
#endif  // HWY_ONCE
