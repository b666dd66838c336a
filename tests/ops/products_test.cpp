// Products against LibTorch in float64: by every way to them that this processor has, in every form, shape and way to
// write the result.
#include "trireme/ops/products/products.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/products/library.h"

namespace trireme::ops::test {
namespace {

struct Shape {
  int64_t m, n, k;
};
// Whole strips and panels; every remainder of 12 rows, and of 16, 32 and 64 columns; k of more than one piece, and odd.
const Shape kShapes[] = {{6, 64, 32},    {1, 1, 2},     {13, 100, 18}, {5, 17, 64},         {96, 192, 130},
                         {50, 65, 7},    {49, 1, 40},   {1, 200, 3},   {100, 70, 2 * 2600}, {400, 64, 2 * 1100},
                         {97, 320, 513}, {19, 33, 257}, {15, 47, 2},   {20, 95, 34},        {22, 31, 48},
                         {23, 1030, 9},  {57, 64, 256}};

/// x [rows, columns], or the same values as a transposed view.
at::Tensor view(const at::Tensor& x, bool transposed) { return transposed ? x.t().contiguous().t() : x; }

/// The largest error beside sqrt(k) roundings of the sum of |a||b|, which bounds what any order of sums can do.
double excess(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, const at::Tensor& before, double unit) {
  const at::Tensor expected = before + a.to(at::kDouble).mm(b.to(at::kDouble));
  const at::Tensor scale = before.abs() + a.to(at::kDouble).abs().mm(b.to(at::kDouble).abs()) + 1e-30;
  return ((c.to(at::kDouble) - expected).abs() / scale).max().item<double>() / unit;
}

/// A way to a product; false where it leaves the product out.
struct Way {
  std::string name;
  std::function<bool(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate)> multiply;
};

std::vector<Way> ways(at::ScalarType dtype) {
  const auto always = [](auto function) {
    return [function](const auto& c, const auto& a, const auto& b, bool accumulate) {
      return function(c, a, b, accumulate), true;
    };
  };
  const bool narrow = is_narrow(dtype);
  std::vector<Way> all = {
      {"multiply", always(multiply)},
      {"LibTorch", always(multiply_by_library)},
  };
  if (narrow) all.push_back({"LibTorch in float32", always(multiply_in_float32)});
  // Into float32 only, and not in every LibTorch.
  if (const at::Tensor one = at::ones({1, 1}, dtype); multiply_bfloat16_by_mkl(at::empty({1, 1}), one, one, false))
    all.push_back({"MKL", multiply_bfloat16_by_mkl});
  for (const GemmKernel* kernel : gemm_kernels(dtype))
    all.push_back({std::string(kernel->name) + " of " + std::to_string(kernel->k_multiple),
                   [kernel](const auto& c, const auto& a, const auto& b, bool accumulate) {
                     return multiply_by(*kernel, c, a, b, accumulate);
                   }});
  return all;
}

void check(const Way& way, const Shape& shape, at::ScalarType dtype, at::ScalarType out, bool accumulate,
           bool a_transposed, bool b_transposed) {
  const auto& [m, n, k] = shape;
  const at::Tensor a = view(random({m, k}, dtype, 1), a_transposed), b = view(random({k, n}, dtype, 2), b_transposed);
  // c lies in wider rows: what is beside it must stay.
  const at::Tensor wide = random({m, n + 3}, out, 3), before = wide.clone(), c = wide.narrow(1, 1, n);
  if (!accumulate) c.fill_(std::nan(""));
  if (!way.multiply(c, a, b, accumulate)) return;
  const at::Tensor start = accumulate ? before.narrow(1, 1, n).to(at::kDouble) : at::zeros({m, n}, at::kDouble);
  // float32: sums of k terms err by at most about sqrt(k) units of 6e-8; bfloat16 results are rounded to 2^-9, float16
  // to 2^-12.
  const bool rounded = is_narrow(out);
  const double unit = out == at::kDouble ? 1e-15 * std::sqrt(k)
                                         : 1.2e-7 * std::sqrt(k) + (rounded ? (out == at::kHalf ? 5e-4 : 4e-3) : 0);
  EXPECT_LT(excess(c, a, b, start, unit), 1)
      << way.name << ": " << c10::toString(dtype) << " -> " << c10::toString(out) << " [" << m << ", " << k << "] x ["
      << k << ", " << n << "]" << (a_transposed ? " a transposed" : "") << (b_transposed ? " b transposed" : "");
  expect_same_bits(wide.narrow(1, 0, 1).contiguous(), before.narrow(1, 0, 1).contiguous(), "left of c");
  expect_same_bits(wide.narrow(1, n + 1, 2).contiguous(), before.narrow(1, n + 1, 2).contiguous(), "right of c");
}

void check(at::ScalarType dtype, at::ScalarType out, bool accumulate) {
  for (const Way& way : ways(dtype))
    for (const Shape& shape : kShapes)
      for (const bool a_transposed : {false, true})
        for (const bool b_transposed : {false, true})
          check(way, shape, dtype, out, accumulate, a_transposed, b_transposed);
}

TEST(Products, AgreeWithLibTorchInFloat64) {
  check(at::kDouble, at::kDouble, false);
  check(at::kFloat, at::kFloat, false);
  check(at::kBFloat16, at::kBFloat16, false);
  check(at::kHalf, at::kHalf, false);
}

TEST(Products, AccumulateInAWiderResult) {
  check(at::kDouble, at::kDouble, true);
  check(at::kFloat, at::kFloat, true);
  check(at::kBFloat16, at::kFloat, true);
  check(at::kHalf, at::kFloat, true);
  check(at::kHalf, at::kFloat, false);
  check(at::kBFloat16, at::kFloat, false);
}

// Views without rows of neighbours are what MKL leaves out, as it does everything on a processor that has none of it.
TEST(Products, NoGradientIsRoundedToBfloat16BeforeItIsAdded) {
  const auto every_second = [](const at::Tensor& x) { return x.slice(0, 0, x.size(0), 2).slice(1, 0, x.size(1), 2); };
  for (const auto& [m, n, k] : {Shape{13, 100, 18}, Shape{70, 33, 257}}) {
    const at::Tensor a = every_second(random({2 * m, 2 * k}, at::kBFloat16, 1)),
                     b = every_second(random({2 * k, 2 * n}, at::kBFloat16, 2));
    for (const auto multiplies : {&multiply, &multiply_by_library})
      for (const bool accumulate : {false, true}) {
        const at::Tensor before = random({m, n}, at::kFloat, 3), c = before.clone();
        multiplies(c, a, b, accumulate);
        const at::Tensor start = accumulate ? before.to(at::kDouble) : at::zeros({m, n}, at::kDouble);
        EXPECT_LT(excess(c, a, b, start, 1.2e-7 * std::sqrt(k)), 1) << m << " " << n << " " << k << accumulate;
      }
  }
}

TEST(Products, OursLeaveOutNoShapeOfRowsAndTransposedViews) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const GemmKernel* kernel : gemm_kernels(dtype))
      for (const int64_t k : {1, 2, 7})
        EXPECT_EQ(multiply_by(*kernel, unwritten({3, 4}, dtype), at::zeros({3, k}, dtype), at::zeros({k, 4}, dtype)),
                  k % kernel->k_multiple == 0)
            << kernel->name;
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const GemmKernel* last : gemm_kernels(dtype).last(gemm_kernels(dtype).empty() ? 0 : 1))
      EXPECT_EQ(last->k_multiple, 1);
}

TEST(Products, AFloatResultKeepsWhatABfloat16ResultRounds) {
  const at::Tensor a = random({64, 512}, at::kBFloat16, 1), b = random({512, 128}, at::kBFloat16, 2);
  const at::Tensor exact = a.to(at::kDouble).mm(b.to(at::kDouble));
  for (const Way& way : ways(at::kBFloat16)) {
    const at::Tensor c = unwritten({64, 128}, at::kFloat);
    ASSERT_TRUE(way.multiply(c, a, b, false));
    EXPECT_LT(relative_error(c, exact), 1e-6) << way.name;
  }
}

TEST(Products, OursRoundToBfloat16AsLibTorchDoes) {
  // One term a sum, so that only the rounding is left: ties, what overflows, infinities, NaN.
  const at::Tensor a = at::tensor({1.00390625f, 1.01171875f, -1.00390625f, 3e38f, -3e38f, 0.0f, -0.0f}).view({-1, 1});
  const float infinity = std::numeric_limits<float>::infinity();
  const at::Tensor b = at::tensor({1.0f, 1.00390625f, 0.99609375f, 2.0f, infinity, std::nanf("")}).view({1, -1});
  const at::Tensor narrow_a = a.to(at::kBFloat16), narrow_b = b.to(at::kBFloat16);
  const at::Tensor expected = (narrow_a.to(at::kFloat) * narrow_b.to(at::kFloat) + 0.0f).to(at::kBFloat16);
  for (const Way& way : ways(at::kBFloat16)) {
    if (way.name.starts_with("LibTorch")) continue;
    const at::Tensor c = unwritten({7, 6}, at::kBFloat16);
    if (!way.multiply(c, narrow_a, narrow_b, false)) continue;
    EXPECT_TRUE(at::equal(c.isnan(), expected.isnan())) << way.name;
    EXPECT_TRUE(at::equal(c.nan_to_num(), expected.nan_to_num())) << way.name << c << expected;
  }
}

// Both sum the same pieces of k in the same order.
TEST(Products, Avx2HasTheBitsOfAvx512) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto named = [&](const std::string& name) -> const GemmKernel* {
      for (const GemmKernel* kernel : gemm_kernels(dtype))
        if (kernel->name == name) return kernel;
      return nullptr;
    };
    const GemmKernel *narrow = named("avx2"), *wide = named("avx512");
    if (narrow == nullptr || wide == nullptr) GTEST_SKIP() << "this processor has only one of both";
    for (const auto& [m, n, k] : {Shape{70, 100, 2300}, {1, 65, 257}, {400, 33, 96}}) {
      const at::Tensor a = random({m, k}, dtype, 1), b = random({k, n}, dtype, 2),
                       found = unwritten({m, n}, at::kFloat), expected = unwritten({m, n}, at::kFloat);
      ASSERT_TRUE(multiply_by(*narrow, found, a, b) && multiply_by(*wide, expected, a, b));
      expect_same_bits(found, expected, c10::toString(dtype));
    }
  }
}

TEST(Products, OursDoNotDependOnThreads) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const GemmKernel* kernel : gemm_kernels(dtype))
      // Of long rows B is packed again for each share; of shorter ones it stays, for shares of more rows than are held.
      for (const auto& [m, n, k] : {Shape{70, 1000, 2300}, {1000, 70, 2300}, {5, 30, 2300}, {4000, 40, 600}})
        expect_same_on_all_threads([&, m = m, n = n, k = k] {
          const at::Tensor a = random({m, k}, dtype, 1), b = random({k, n}, dtype, 2);
          const at::Tensor c = unwritten({m, n}, dtype), from_columns = unwritten({m, n}, dtype);
          EXPECT_TRUE(multiply_by(*kernel, c, a, b));
          EXPECT_TRUE(multiply_by(*kernel, from_columns, view(a, true), view(b, true)));
          return std::vector{c, from_columns};
        });
}

TEST(Products, OntoAnotherMatrixAreTheProductAndThenTheSum) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor a = random({33, 40}, dtype, 1), b = random({40, 24}, dtype, 2),
                     addend = random({33, 24}, dtype, 3);
    at::Tensor onto = at::empty_like(addend), apart = at::empty_like(addend);
    multiply_onto(onto, a, b, addend);
    multiply(apart, a, b);
    add_forward(apart, apart, addend);
    EXPECT_TRUE(at::equal(onto, apart));
  }
  EXPECT_THROW(multiply_onto(at::empty({2, 3}), at::ones({2, 4}), at::ones({4, 3}), at::ones({3, 2})), ShapeError);
}

TEST(Products, EmptyOnesAreZeroOrNothing) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
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
                 "accumulating into two bytes would lose bits");
  expect_refused(tensor({4, 3}, at::kFloat).t(), tensor({3, 5}, at::kFloat), tensor({5, 4}, at::kFloat), false,
                 "rows of c must be contiguous");
}

}  // namespace
}  // namespace trireme::ops::test
