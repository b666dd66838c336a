// GELU for each value by itself: the norms that elementwise_test.cpp compares would hide small results.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "tests/ops/reference.h"
#include "tests/ops/support.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"

namespace trireme::ops::test {
namespace {

// Every number of two bytes there is but NaNs and infinities, or 70,000 others between -12 and 12.
at::Tensor every_value(at::ScalarType dtype) {
  if (!is_narrow(dtype)) return at::linspace(-12, 12, 70000, at::kDouble).to(dtype).unsqueeze(1);
  const auto all = at::arange(-32768, 32768, at::kShort).view(dtype);
  return all.masked_select(all.isfinite()).unsqueeze(1);
}

// float16: one rounding, or the least number there is. bfloat16: rounding is 2e-3, and what lies beyond the table is
// lost. float32: an angle of up to 20 is rounded before its exponential is taken. float64: the reference subtracts
// numbers near 1.
struct Bounds {
  double relative, absolute;
};
Bounds bounds(at::ScalarType dtype) {
  return dtype == at::kDouble  ? Bounds{1e-13, 1e-14}
         : dtype == at::kFloat ? Bounds{1e-5, 1e-9}
         : dtype == at::kHalf  ? Bounds{5.1e-4, 6e-8}
                               : Bounds{5e-3, 8e-7};
}

void expect_each_close(const at::Tensor& actual, const at::Tensor& exact, Bounds bounds, const char* what) {
  const auto allowed = exact.abs() * bounds.relative + bounds.absolute + 1e-300;
  const auto excess = ((actual.to(at::kDouble) - exact).abs() / allowed).flatten();
  const auto worst = excess.argmax().item<int64_t>();
  EXPECT_LE(excess[worst].item<double>(), 1) << what << " is " << actual.flatten()[worst].item<double>()
                                             << " and should be " << exact.flatten()[worst].item<double>();
}

TEST(Gelu, IsAccurateForEveryValue) {
  for_each_case([](at::ScalarType dtype) {
    const auto x = every_value(dtype), y = unwritten(x.sizes(), dtype);
    ops::gelu_forward(y, x);
    expect_each_close(y, reference::gelu(x.to(at::kDouble)), bounds(dtype), "y");
  });
}

TEST(Gelu, ItsSlopeIsAccurateForEveryValue) {
  for_each_case([](at::ScalarType dtype) {
    auto x = every_value(dtype);
    x = x.masked_select(x.abs() < 1e6).unsqueeze(1);  // autograd of the reference overflows
    const auto dy = at::ones_like(x), dx = x.clone();
    const auto exact = autograd([](const std::vector<at::Tensor>& in) { return reference::gelu(in[0]); }, {x}, dy)[0];
    ops::gelu_backward(dx, dy);
    Bounds allowed = bounds(dtype);
    allowed.absolute *= 100;  // the slope crosses 0, where its parts cancel
    expect_each_close(dx, exact, allowed, "dx");
  });
}

TEST(Gelu, AnInfinityOrANaNShows) {
  for_each_case([](at::ScalarType dtype) {
    const auto x = at::tensor({INFINITY, NAN, -NAN}, at::kDouble).to(dtype).unsqueeze(1), y = unwritten({3, 1}, dtype);
    ops::gelu_forward(y, x);
    EXPECT_EQ(y[0].item<double>(), INFINITY);
    EXPECT_TRUE(y.narrow(0, 1, 2).isnan().all().item<bool>());
    const auto dx = x.clone(), dy = at::ones_like(x);
    ops::gelu_backward(dx, dy);
    EXPECT_TRUE(dx.narrow(0, 1, 2).isnan().all().item<bool>());
  });
}

// P(x), with the digits of small values that 1 + erf would lose.
at::Tensor cumulative(const at::Tensor& x) { return 0.5 * at::erfc(-x * std::numbers::sqrt2 / 2); }

// float32 is as near as a rational function of erf is, and as 1 + erf is where both cancel.
Bounds plain_bounds(at::ScalarType dtype) {
  return dtype == at::kDouble ? Bounds{1e-13, 1e-14} : Bounds{bounds(dtype).relative, 1e-6};
}

TEST(PlainActivation, TheExactGeluIsAccurateForEveryValue) {
  for_each_case([](at::ScalarType dtype) {
    const auto x = every_value(dtype), y = unwritten(x.sizes(), dtype), exact = x.to(at::kDouble);
    ops::plain_forward(PlainActivation::kGeluExact, y, x);
    expect_each_close(y, exact * cumulative(exact), plain_bounds(dtype), "y");
    const auto dx = x.clone(), dy = at::ones_like(x);
    ops::plain_backward(PlainActivation::kGeluExact, dx, dy);
    EXPECT_TRUE(dy.equal(y)) << "backward computes the value again";
    const auto slope = cumulative(exact) + exact * at::exp(-0.5 * exact * exact) / std::sqrt(2 * std::numbers::pi);
    expect_each_close(dx, slope, plain_bounds(dtype), "dx");
  });
}

TEST(PlainActivation, ReluKeepsWhatIsPositiveAndNaN) {
  for_each_case([](at::ScalarType dtype) {
    const auto x = every_value(dtype), y = unwritten(x.sizes(), dtype);
    ops::plain_forward(PlainActivation::kRelu, y, x);
    // AVX512-BF16 makes bfloat16 numbers below the least normal one 0.
    expect_each_close(y, at::relu(x.to(at::kDouble)), {0, dtype == at::kBFloat16 ? 1.2e-38 : 0}, "y");
    const auto dx = x.clone(), dy = at::full_like(x, 3);
    ops::plain_backward(PlainActivation::kRelu, dx, dy);
    EXPECT_TRUE(dx.equal(at::where(x > 0, 3, 0).to(dtype)));
    EXPECT_TRUE(dy.equal(y));
    const auto odd = at::tensor({INFINITY, NAN}, at::kDouble).to(dtype).unsqueeze(1), out = unwritten({2, 1}, dtype);
    ops::plain_forward(PlainActivation::kRelu, out, odd);
    EXPECT_EQ(out[0].item<double>(), INFINITY);
    EXPECT_TRUE(out[1].isnan().item<bool>());
  });
}

}  // namespace
}  // namespace trireme::ops::test
