// Columns with factors of their own, and norms of merged matrices.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/ops/ops.h"

namespace trireme::ops {
namespace {

constexpr int64_t kTokens = 70, kColumns = 37;

at::ScalarType wide_of(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

TEST(ScaleColumns, MultipliesOrAddsWithOneRounding) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const bool adds : {false, true}) {
      const at::Tensor whole = at::randn({kTokens, kColumns + 20}, at::kDouble).to(dtype), before = whole.clone(),
                       x = at::randn({kTokens, kColumns + 3}, at::kDouble).to(dtype).narrow(1, 3, kColumns),
                       factors = at::randn({kColumns}, at::kDouble).to(wide_of(dtype));
      scale_columns(whole.narrow(1, 7, kColumns), x, factors, -1, adds);
      at::Tensor expected = before.to(at::kDouble);
      const at::Tensor product = x.to(at::kDouble) * (factors.to(at::kDouble) - 1);
      at::Tensor columns = expected.narrow(1, 7, kColumns);
      adds ? columns.add_(product) : columns.copy_(product);
      const double limit = dtype == at::kDouble  ? 1e-14
                           : dtype == at::kFloat ? 1e-6
                           : dtype == at::kHalf  ? 0x1p-11
                                                 : 0x1p-8;
      const at::Tensor error = (whole.to(at::kDouble) - expected).abs() / (1 + expected.abs());
      EXPECT_LE(error.max().item<double>(), limit) << c10::toString(dtype) << adds;
      EXPECT_TRUE(at::equal(whole.narrow(1, 0, 7), before.narrow(1, 0, 7)));
      EXPECT_TRUE(at::equal(whole.narrow(1, 7 + kColumns, 13), before.narrow(1, 7 + kColumns, 13)));
    }
}

TEST(MergedSquares, AreThoseOfTheSumWhicheverWayItIsStored) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const bool in_out : {false, true})
      for (const auto& [out, in] : {std::pair<int64_t, int64_t>{kTokens, kColumns}, {kColumns, kTokens}, {601, 9}}) {
        const at::Tensor w = at::randn({out, in}, at::kDouble).to(dtype), a = at::randn({5, in}, at::kDouble).to(dtype),
                         b = at::randn({out, 5}, at::kDouble).to(dtype), squares = at::empty({out}, wide_of(dtype)),
                         wide = at::empty({3 * std::max(in, out) + 1}, wide_of(dtype));
        merged_squares(squares, in_out ? w.t().contiguous() : w, b, a, 0.5, in_out, wide);
        const at::Tensor merged = w.to(at::kDouble) + 0.5 * b.to(at::kDouble).mm(a.to(at::kDouble));
        const at::Tensor expected = merged.square().sum(1);
        EXPECT_LE(((squares.to(at::kDouble) - expected) / expected).abs().max().item<double>(),
                  dtype == at::kDouble ? 1e-13 : 1e-5)
            << c10::toString(dtype) << in_out << out;
      }
}

}  // namespace
}  // namespace trireme::ops
