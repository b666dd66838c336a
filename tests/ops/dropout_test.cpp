// Dropout by counters, and products that are added to a tensor.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"

namespace trireme::ops {
namespace {

constexpr int64_t kRows = 70, kWidth = 37, kFirst = 5;

// The mask that ops.h describes, times 1 / (1 - p).
at::Tensor expected_mask(double p, const at::Tensor& keys, int64_t first_column) {
  at::Tensor mask = at::zeros({keys.size(0), kWidth}, at::kDouble);
  for (int64_t t = 0; t < keys.size(0); ++t)
    for (int64_t j = 0; j < kWidth; ++j) {
      uint32_t h =
          static_cast<uint32_t>(keys.data_ptr<int32_t>()[t]) + static_cast<uint32_t>(first_column + j) * 0x9E3779B9u;
      h = (h ^ (h >> 16)) * 0x7feb352du;
      h = (h ^ (h >> 15)) * 0x846ca68bu;
      h ^= h >> 16;
      if (double(h) >= p * 0x1p32) mask.data_ptr<double>()[t * kWidth + j] = 1 / (1 - p);
    }
  return mask;
}

at::Tensor some_keys() { return at::arange(kRows, at::kInt) * 1103515245 + 12345; }

TEST(Dropout, KeepsTheElementsThatTheHashOfTheirCountersSays) {
  const at::Tensor keys = some_keys(), mask = expected_mask(0.25, keys, kFirst);
  EXPECT_NEAR(mask.ne(0).to(at::kDouble).mean().item<double>(), 0.75, 0.03);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::randn({kRows, kWidth}, at::kDouble).to(dtype), y = at::empty_like(x);
    dropout_forward(y, x, {.p = 0.25, .keys = keys, .first_column = kFirst});
    const at::Tensor wide = is_narrow(dtype) ? x.to(at::kFloat) : x;
    EXPECT_TRUE(at::equal(y, (wide * mask.to(wide.scalar_type())).to(dtype))) << c10::toString(dtype);
  }
}

TEST(AddProduct, AddsToColumnsOfARowRoundedOnceWithAndWithoutAMask) {
  const at::Tensor keys = some_keys();
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const double p : {0.0, 0.25}) {
      const at::Tensor whole = at::randn({kRows, kWidth + 20}, at::kDouble).to(dtype), before = whole.clone(),
                       a = at::randn({kRows, 8}, at::kDouble).to(dtype),
                       b = at::randn({8, kWidth}, at::kDouble).to(dtype),
                       wide = at::empty({3 * kWidth + 1}, dtype == at::kDouble ? at::kDouble : at::kFloat);
      add_product(whole.narrow(1, 7, kWidth), a, b, wide, {.p = p, .keys = keys, .first_column = kFirst});
      at::Tensor product = a.to(at::kDouble).mm(b.to(at::kDouble));
      if (p > 0) product = product * expected_mask(p, keys, kFirst);
      at::Tensor expected = before.to(at::kDouble);
      expected.narrow(1, 7, kWidth) += product;
      // One rounding to the dtype, beside what a float32 sum of eight terms loses.
      const double limit = dtype == at::kDouble  ? 1e-14
                           : dtype == at::kFloat ? 1e-6
                           : dtype == at::kHalf  ? 0x1p-11
                                                 : 0x1p-8;
      const at::Tensor error = (whole.to(at::kDouble) - expected).abs() / (1 + expected.abs());
      EXPECT_LE(error.max().item<double>(), limit) << c10::toString(dtype) << p;
      EXPECT_TRUE(at::equal(whole.narrow(1, 0, 7), before.narrow(1, 0, 7)));
      EXPECT_TRUE(at::equal(whole.narrow(1, 7 + kWidth, 13), before.narrow(1, 7 + kWidth, 13)));
    }
}

}  // namespace
}  // namespace trireme::ops
