#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ops/reference.h"
#include "tests/ops/support.h"
#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::ops::test {
namespace {

struct LossCase {
  int64_t tokens, width, vocabulary, chunk_rows;
};
// A prime vocabulary, one token, a vocabulary shorter than a vector, chunks that do not divide the tokens.
const LossCase kLossCases[] = {{1, 5, 7, 1}, {10, 16, 3, 10}, {37, 24, 101, 8}, {37, 24, 101, 37}, {20, 33, 521, 7}};

struct LossResult {
  at::Tensor loss_sum, dx, dw;
};
LossResult run_loss(const at::Tensor& x, const at::Tensor& w, const at::Tensor& targets, double scale,
                    int64_t chunk_rows, bool in_place = false, double softcap = 0) {
  const auto dtype = x.scalar_type();
  LossResult result{unwritten({1}, at::kDouble), in_place ? x.clone() : unwritten(x.sizes(), dtype),
                    unwritten(w.sizes(), dtype)};
  const auto logits = unwritten({chunk_rows, w.size(0)}, dtype);
  const auto dw_sum = chunk_rows >= x.size(0) ? at::Tensor() : unwritten(w.sizes(), wide(dtype));
  cross_entropy_forward_backward(result.loss_sum, result.dx, result.dw, in_place ? result.dx : x, w, targets, scale,
                                 logits, dw_sum, softcap);
  return result;
}

at::Tensor forward_loss(const at::Tensor& x, const at::Tensor& w, const at::Tensor& targets, int64_t chunk_rows,
                        double softcap = 0) {
  const auto loss_sum = unwritten({1}, at::kDouble);
  cross_entropy_forward(loss_sum, x, w, targets, unwritten({chunk_rows, w.size(0)}, x.scalar_type()), softcap);
  return loss_sum;
}

TEST(CrossEntropy, AgreesWithTheReference) {
  for_each_case([](at::ScalarType dtype) {
    for (const auto& [tokens, width, vocabulary, chunk_rows] : kLossCases) {
      SCOPED_TRACE(vocabulary);
      const auto x = random({tokens, width}, dtype, 1), w = random({vocabulary, width}, dtype, 2) * 0.5;
      const auto targets = some_targets(tokens, vocabulary);
      const auto reference = [&](const auto& in) { return reference::cross_entropy(in[0], in[1], targets); };
      const auto expected_loss = reference(std::vector{x.to(at::kDouble), w.to(at::kDouble)});
      const auto expected = autograd(reference, {x, w}, at::scalar_tensor(kLossScale, at::kDouble));

      const auto result = run_loss(x, w, targets, kLossScale, chunk_rows);
      EXPECT_LE(relative_error(result.loss_sum, expected_loss.reshape({1})), tolerance(dtype));
      expect_close(result.dx, expected[0], "dx");
      expect_close(result.dw, expected[1], "dw");
      expect_same_bits(forward_loss(x, w, targets, chunk_rows), result.loss_sum, "loss of the forward alone");

      const auto in_place = run_loss(x, w, targets, kLossScale, chunk_rows, true);
      expect_same_bits(in_place.dx, result.dx, "dx in place of x");
      expect_same_bits(in_place.dw, result.dw, "dw when dx takes the place of x");
    }
  });
}

TEST(CrossEntropy, OfCappedLogitsAgreesWithTheReference) {
  for_each_case([](at::ScalarType dtype) {
    for (const auto& [tokens, width, vocabulary, chunk_rows] : kLossCases) {
      SCOPED_TRACE(vocabulary);
      // Logits of up to four times the cap.
      const double cap = 3, size = 2 / std::sqrt(static_cast<double>(width));
      const auto x = random({tokens, width}, dtype, 1) * 2, w = random({vocabulary, width}, dtype, 2) * size;
      const auto targets = some_targets(tokens, vocabulary);
      const auto reference = [&](const auto& in) { return reference::cross_entropy(in[0], in[1], targets, cap); };
      const auto expected_loss = reference(std::vector{x.to(at::kDouble), w.to(at::kDouble)});
      const auto expected = autograd(reference, {x, w}, at::scalar_tensor(kLossScale, at::kDouble));
      const auto result = run_loss(x, w, targets, kLossScale, chunk_rows, false, cap);
      EXPECT_LE(relative_error(result.loss_sum, expected_loss.reshape({1})), tolerance(dtype));
      expect_close(result.dx, expected[0], "dx");
      expect_close(result.dw, expected[1], "dw");
      expect_same_bits(forward_loss(x, w, targets, chunk_rows, cap), result.loss_sum, "loss of the forward alone");
    }
  });
  EXPECT_THROW(run_loss(at::eye(4), at::eye(4), at::arange(4), 1, 4, false, -3), ShapeError);
}

TEST(CrossEntropy, BackwardAgreesWithFiniteDifferences) {
  const auto x = random({7, 5}, at::kDouble, 1), w = random({11, 5}, at::kDouble, 2), targets = some_targets(7, 11);
  const auto ours = [&](const auto& in) { return forward_loss(in[0], in[1], targets, 3); };
  const auto expected = finite_differences(ours, {x, w}, at::full({1}, kLossScale, at::kDouble));
  const auto result = run_loss(x, w, targets, kLossScale, 3);
  EXPECT_LE(relative_error(result.dx, expected[0]), 1e-8);
  EXPECT_LE(relative_error(result.dw, expected[1]), 1e-8);
}

TEST(CrossEntropy, IsTheSameInChunksAndInOnePiece) {
  const auto targets = some_targets(64, 211);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto x = random({64, 48}, dtype, 1), w = random({211, 48}, dtype, 2) * 0.3;
    const auto whole = run_loss(x, w, targets, kLossScale, 64);
    for (const int64_t chunk_rows : {1, 16, 63}) {
      const auto chunked = run_loss(x, w, targets, kLossScale, chunk_rows);
      // Not bit for bit: the products of other heights may be summed in another order.
      EXPECT_LE(relative_error(chunked.loss_sum, whole.loss_sum), tolerance(dtype));
      expect_close(chunked.dx, whole.dx, "dx");
      expect_close(chunked.dw, whole.dw, "dw");
    }
  }
}

TEST(CrossEntropy, TokensWithoutSupervisionCountForNothing) {
  const auto x = random({6, 8}, at::kFloat, 1), w = random({13, 8}, at::kFloat, 2);
  const auto none = run_loss(x, w, at::full({6}, -100, at::kLong), kLossScale, 4);
  EXPECT_EQ(none.loss_sum.item<double>(), 0);
  EXPECT_TRUE(none.dx.eq(0).all().item<bool>());
  EXPECT_TRUE(none.dw.eq(0).all().item<bool>());
  const auto some = run_loss(x, w, at::tensor({3, -100, 5, -100, -100, 12}, at::kLong), kLossScale, 6);
  EXPECT_TRUE(some.dx[1].eq(0).all().item<bool>());
  EXPECT_TRUE(some.dx[4].eq(0).all().item<bool>());
  EXPECT_TRUE(some.dx[5].ne(0).any().item<bool>());
}

TEST(CrossEntropy, NoTokensGiveZeros) {
  const auto result =
      run_loss(at::zeros({0, 8}), random({13, 8}, at::kFloat, 2), at::zeros({0}, at::kLong), kLossScale, 1);
  EXPECT_EQ(result.loss_sum.item<double>(), 0);
  EXPECT_TRUE(result.dw.eq(0).all().item<bool>());
}

TEST(CrossEntropy, NothingIsAddedToABfloat16Gradient) {
  const auto zeros = [](at::IntArrayRef shape, at::ScalarType dtype) { return at::zeros(shape, at::dtype(dtype)); };
  const at::Tensor dw = zeros({32, 16}, at::kBFloat16), dw_sum = zeros({32, 16}, at::kFloat),
                   dlogits = zeros({4, 32}, at::kBFloat16), x = zeros({4, 16}, at::kBFloat16);
  for (const bool last : {false, true})
    EXPECT_THROW(cross_entropy_weight_gradient({dw, true}, dw_sum, dlogits, x, true, last), ShapeError);
  EXPECT_NO_THROW(cross_entropy_weight_gradient({dw_sum, true}, {}, dlogits, x, true, false));
}

TEST(CrossEntropy, SurvivesLargeLogitsAndShowsNaN) {
  const auto w = at::eye(5) * 1e4;  // logits 1e4 and 0: exp of neither the value nor the difference may overflow
  const auto result = run_loss(at::eye(5), w, at::tensor({0, 1, 2, 3, 0}, at::kLong), 1, 5);
  EXPECT_DOUBLE_EQ(result.loss_sum.item<double>(), 1e4);
  EXPECT_TRUE(result.dx.isfinite().all().item<bool>());
  auto x = at::eye(5);
  x[3][2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(forward_loss(x, w, at::zeros({5}, at::kLong), 5).item<double>()));
}

TEST(CrossEntropy, HasTheSameBitsOnAnyNumberOfThreads) {
  // The identity as weight: the products are exact in any order, and dx is the gradient of the logits itself.
  const auto x = random({300, 257}, at::kFloat, 1), w = at::eye(257);
  const auto targets = some_targets(300, 257);
  expect_same_on_all_threads([&] {
    const auto result = run_loss(x, w, targets, kLossScale, 300);
    return std::vector{result.loss_sum, result.dx};
  });
}

TEST(CrossEntropy, NamesABadTarget) {
  const auto x = at::zeros({3, 4}), w = at::zeros({10, 4});
  for (const int64_t bad : {10, -1, -99}) {
    try {
      forward_loss(x, w, at::tensor(std::vector<int64_t>{1, -100, bad}), 3);
      FAIL() << "no error";
    } catch (const ShapeError& error) {
      EXPECT_EQ(error.what(), "cross_entropy_forward: targets[2] = " + std::to_string(bad) +
                                  " is outside the vocabulary of 10; use 0 to 9, or -100 for a token that is not "
                                  "supervised");
    }
  }
}

TEST(CrossEntropy, ChunksHoldAboutEightMillionLogits) {
  EXPECT_EQ(cross_entropy_chunk_rows(1024, 8192), 1024);       // 16 MiB of bfloat16: one chunk
  EXPECT_EQ(cross_entropy_chunk_rows(4096, 8192), 1024);       // four
  EXPECT_EQ(cross_entropy_chunk_rows(1100, 8192), 576);        // two nearly equal ones, not 1024 + 76
  EXPECT_EQ(cross_entropy_chunk_rows(4096, 128256), 256);      // never fewer than 256 rows
  EXPECT_EQ(cross_entropy_chunk_rows(100, 128256), 100);       // unless there are fewer tokens
  EXPECT_EQ(cross_entropy_chunk_rows(1 << 20, 256), 1 << 15);  // a byte vocabulary
}

}  // namespace
}  // namespace trireme::ops::test
