// Products of numbers of 8 bits: operands are rounded as LibTorch rounds them, and multiplied as what they are then.
#include "trireme/ops/products/float8.h"

#include <cmath>
#include <limits>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/ops/products/products.h"

namespace trireme::ops::test {
namespace {

/// The least power of two that lets `x` fit below `end`, by division.
double scale_of(const at::Tensor& x, double end) {
  const double largest = x.to(at::kDouble).abs().max().item<double>();
  if (largest == 0) return 1;
  double scale = std::exp2(std::floor(std::log2(largest)) - 20);
  while (largest / scale > end) scale *= 2;
  return scale;
}

/// LibTorch's rounding, in bfloat16.
at::Tensor rounded(const at::Tensor& x, Float8 format) {
  const bool fine = format == Float8::e4m3;
  const double scale = scale_of(x, fine ? 448 : 57344);
  return x.to(at::kFloat)
      .div(scale)
      .to(fine ? at::kFloat8_e4m3fn : at::kFloat8_e5m2)
      .to(at::kFloat)
      .mul(scale)
      .to(at::kBFloat16);
}

at::Tensor scratch_for(int64_t m, int64_t n, int64_t k) {
  return at::empty({float8_scratch_bytes(m, n, k, false)}, at::kByte);
}

at::Tensor turned(const at::Tensor& x, bool transposed) { return transposed ? x.t().contiguous().t() : x; }

TEST(Float8, ProductsAreThoseOfRoundedOperands) {
  for (const auto& [m, n, k] : {std::tuple{1, 1, 1}, {5, 37, 19}, {64, 48, 96}, {130, 65, 33}})
    for (const Float8 of_a : {Float8::e4m3, Float8::e5m2})
      for (const bool a_transposed : {false, true})
        for (const bool b_transposed : {false, true})
          for (const double size : {1.0, 3e-12, 7e20}) {
            SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", a times " << size);
            const at::Tensor a =
                turned(random({m, k}, at::kDouble, 1).pow(3).mul(size).to(at::kBFloat16), a_transposed);
            const at::Tensor b = turned(random({k, n}, at::kBFloat16, 2), b_transposed);
            for (const auto dtype : {at::kBFloat16, at::kFloat}) {
              at::Tensor c = at::full({m, n}, NAN, dtype), want = at::empty({m, n}, dtype);
              multiply(want, turned(rounded(a, of_a), a_transposed), turned(rounded(b, Float8::e4m3), b_transposed));
              multiply_float8(c, {a, of_a}, {b, Float8::e4m3}, scratch_for(m, n, k));
              EXPECT_TRUE(at::equal(c, want));
            }
          }
}

TEST(Float8, AddsToWhatIsThere) {
  const at::Tensor a = random({32, 48}, at::kBFloat16, 1), b = random({48, 64}, at::kBFloat16, 2),
                   before = random({32, 64}, at::kFloat, 3), narrow = before.to(at::kBFloat16);
  at::Tensor product = at::empty({32, 64}, at::kFloat), sum = before.clone(),
             beside = at::empty({32, 64}, at::kBFloat16);
  multiply_float8(product, {a, Float8::e5m2}, {b, Float8::e4m3}, scratch_for(32, 64, 48));
  multiply_float8(sum, {a, Float8::e5m2}, {b, Float8::e4m3}, scratch_for(32, 64, 48), sum);
  EXPECT_LE((sum - (before + product)).abs().max().item<double>(), 2e-5);
  multiply_float8(beside, {a, Float8::e5m2}, {b, Float8::e4m3}, scratch_for(32, 64, 48), narrow);
  EXPECT_LE((beside.to(at::kFloat) - (narrow.to(at::kFloat) + product)).abs().max().item<double>(), 0.2);
  EXPECT_THROW(multiply_float8(beside, {a, Float8::e5m2}, {b, Float8::e4m3}, scratch_for(32, 64, 48), beside),
               ShapeError);
}

// A run must see them in its loss.
TEST(Float8, NumbersThatAreNotFiniteBecomeNaN) {
  const at::Tensor b = at::ones({16, 16}, at::kBFloat16);
  for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
    at::Tensor a = random({16, 16}, at::kBFloat16, 1), c = at::empty({16, 16}, at::kFloat);
    a[3][5].fill_(bad);
    multiply_float8(c, {a, Float8::e4m3}, {b, Float8::e4m3}, scratch_for(16, 16, 16));
    EXPECT_TRUE(c[3].isnan().all().item<bool>());
    EXPECT_EQ(c.isnan().sum().item<int64_t>(), 16);
  }
}

TEST(Float8, ScalesLetTheLargestNumberFit) {
  EXPECT_EQ(float8_scale(448, 8), 1);
  EXPECT_EQ(float8_scale(449, 8), 2);
  EXPECT_EQ(float8_scale(224, 8), 0.5);
  EXPECT_EQ(float8_scale(57344, 15), 1);
  EXPECT_EQ(float8_scale(0, 8), 1);
  EXPECT_EQ(float8_scale(std::numeric_limits<float>::infinity(), 8), 1);
  EXPECT_EQ(float8_scale(std::numeric_limits<float>::denorm_min(), 8), std::exp2(-100.0f));
}

TEST(Float8, RefusesWhatDoesNotFit) {
  const at::Tensor a = at::zeros({4, 8}, at::kBFloat16), b = at::zeros({8, 2}, at::kBFloat16),
                   c = at::zeros({4, 2}, at::kFloat);
  const auto call = [&](const at::Tensor& x, const at::Tensor& y, const at::Tensor& room) {
    multiply_float8(c, {x, Float8::e4m3}, {y, Float8::e4m3}, room);
  };
  EXPECT_THROW(call(a.to(at::kFloat), b, scratch_for(4, 2, 8)), ShapeError);
  EXPECT_THROW(call(a, b.t(), scratch_for(4, 2, 8)), ShapeError);
  EXPECT_THROW(call(a, b, scratch_for(4, 2, 8).narrow(0, 1, 2 * 6 * 8 - 1)), ShapeError);
}

}  // namespace
}  // namespace trireme::ops::test
