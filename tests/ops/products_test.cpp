// multiply() against LibTorch in float64, in every form, shape and way to write the result.
#include "trireme/ops/products.h"

#include <cmath>

#include "support.h"
#include "trireme/base/error.h"

namespace trireme::ops::test {
namespace {

struct Shape {
  int64_t m, n, k;
};
// Whole strips and panels; every remainder of 6 rows and of 16 and 64 columns; k of more than one piece, and odd.
const Shape kShapes[] = {{6, 64, 32},         {1, 1, 2},           {13, 100, 18}, {5, 17, 64},
                         {96, 192, 130},      {50, 65, 7},         {49, 1, 40},   {1, 200, 3},
                         {100, 70, 2 * 2600}, {400, 64, 2 * 1100}, {97, 320, 513}};

/// x [rows, columns], or the same values as a transposed view.
at::Tensor view(const at::Tensor& x, bool transposed) { return transposed ? x.t().contiguous().t() : x; }

/// The largest error beside sqrt(k) roundings of the sum of |a||b|, which bounds what any order of sums can do.
double excess(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, const at::Tensor& before, double unit) {
  const at::Tensor expected = before + a.to(at::kDouble).mm(b.to(at::kDouble));
  const at::Tensor scale = before.abs() + a.to(at::kDouble).abs().mm(b.to(at::kDouble).abs()) + 1e-30;
  return ((c.to(at::kDouble) - expected).abs() / scale).max().item<double>() / unit;
}

void check(at::ScalarType dtype, at::ScalarType out, bool accumulate) {
  for (const auto& [m, n, k] : kShapes)
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true}) {
        const at::Tensor a = view(random({m, k}, dtype, 1), a_transposed),
                         b = view(random({k, n}, dtype, 2), b_transposed);
        // c lies in wider rows: what is beside it must stay.
        const at::Tensor wide = random({m, n + 3}, out, 3), before = wide.clone(), c = wide.narrow(1, 1, n);
        if (!accumulate) c.fill_(std::nan(""));
        multiply(c, a, b, accumulate);
        const at::Tensor start = accumulate ? before.narrow(1, 1, n).to(at::kDouble) : at::zeros({m, n}, at::kDouble);
        // float32: sums of k terms err by at most about sqrt(k) units of 6e-8; bfloat16 results are rounded to 2^-9.
        // Where LibTorch multiplies, a float32 result of bfloat16 was rounded too.
        const bool rounded =
            out == at::kBFloat16 || (dtype == at::kBFloat16 && (gemm_kernel(dtype) == nullptr || k % 2 == 1));
        const double unit = out == at::kDouble ? 1e-15 * std::sqrt(k) : 1.2e-7 * std::sqrt(k) + (rounded ? 4e-3 : 0);
        EXPECT_LT(excess(c, a, b, start, unit), 1)
            << c10::toString(dtype) << " -> " << c10::toString(out) << " [" << m << ", " << k << "] x [" << k << ", "
            << n << "]" << (a_transposed ? " a transposed" : "") << (b_transposed ? " b transposed" : "");
        expect_same_bits(wide.narrow(1, 0, 1).contiguous(), before.narrow(1, 0, 1).contiguous(), "left of c");
        expect_same_bits(wide.narrow(1, n + 1, 2).contiguous(), before.narrow(1, n + 1, 2).contiguous(), "right of c");
      }
}

TEST(Products, AgreeWithLibTorchInFloat64) {
  check(at::kDouble, at::kDouble, false);
  check(at::kFloat, at::kFloat, false);
  check(at::kBFloat16, at::kBFloat16, false);
}

TEST(Products, AccumulateInAWiderResult) {
  check(at::kDouble, at::kDouble, true);
  check(at::kFloat, at::kFloat, true);
  check(at::kBFloat16, at::kFloat, true);
  check(at::kBFloat16, at::kFloat, false);
}

TEST(Products, AFloatResultKeepsWhatABfloat16ResultRounds) {
  const at::Tensor a = random({64, 512}, at::kBFloat16, 1), b = random({512, 128}, at::kBFloat16, 2);
  const at::Tensor c = unwritten({64, 128}, at::kFloat), exact = a.to(at::kDouble).mm(b.to(at::kDouble));
  multiply(c, a, b);
  EXPECT_LT(relative_error(c, exact), gemm_kernel(at::kBFloat16) != nullptr ? 1e-6 : 3e-3);
}

TEST(Products, OursDoNotDependOnThreads) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    if (gemm_kernel(dtype) == nullptr) GTEST_SKIP() << "LibTorch multiplies on this processor";
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{70, 1000}, {1000, 70}, {5, 30}})
      expect_same_on_all_threads([&, m = m, n = n] {
        const at::Tensor a = random({m, 2300}, dtype, 1), b = random({2300, n}, dtype, 2);
        const at::Tensor c = unwritten({m, n}, dtype), from_columns = unwritten({m, n}, dtype);
        multiply(c, a, b);
        multiply(from_columns, view(a, true), view(b, true));
        return std::vector{c, from_columns};
      });
  }
}

TEST(Products, EmptyOnesAreZeroOrNothing) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor c = unwritten({3, 4}, dtype);
    multiply(c, at::empty({3, 0}, dtype), at::empty({0, 4}, dtype));
    EXPECT_EQ(c.to(at::kFloat).abs().max().item<float>(), 0);
    multiply(at::empty({0, 4}, dtype), at::empty({0, 5}, dtype), at::empty({5, 4}, dtype));
  }
}

void expect_refused(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate, const char* text) {
  try {
    multiply(c, a, b, accumulate);
    FAIL() << "expected: " << text;
  } catch (const ShapeError& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(Products, RefuseWhatDoesNotFit) {
  const auto tensor = [](at::IntArrayRef sizes, at::ScalarType dtype) { return at::zeros(sizes, dtype); };
  expect_refused(tensor({3, 4}, at::kFloat), tensor({3, 5}, at::kFloat), tensor({6, 4}, at::kFloat), false,
                 "a is [3, 5], b is [6, 4] and c is [3, 4]");
  expect_refused(tensor({3, 4}, at::kDouble), tensor({3, 5}, at::kFloat), tensor({5, 4}, at::kFloat), false,
                 "must be of one dtype");
  expect_refused(tensor({3, 4}, at::kBFloat16), tensor({3, 5}, at::kBFloat16), tensor({5, 4}, at::kBFloat16), true,
                 "accumulating into bfloat16 would lose bits");
  expect_refused(tensor({4, 3}, at::kFloat).t(), tensor({3, 5}, at::kFloat), tensor({5, 4}, at::kFloat), false,
                 "rows of c must be contiguous");
}

}  // namespace
}  // namespace trireme::ops::test
