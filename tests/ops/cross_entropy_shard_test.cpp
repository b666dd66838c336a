// Cross-entropy over a cut vocabulary: the ranks of a group are played one after another, and their reductions done by
// ATen. Logits are given, so that every difference is the operations' own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/ops/reference.h"
#include "tests/ops/support.h"
#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::ops::test {
namespace {

constexpr double kHeld = 2.5;

struct ShardCase {
  int64_t rows, vocabulary, width, ranks;  // width: columns of a rank; ranks * width >= vocabulary
};
// One rank, ranks that divide the vocabulary, padding in the last rank, a rank with nothing but padding.
const ShardCase kShardCases[] = {{1, 7, 7, 1},      {10, 96, 48, 2}, {37, 101, 40, 3},
                                 {20, 521, 131, 4}, {5, 33, 33, 2},  {9, 2, 1, 3}};

struct ShardResult {
  at::Tensor loss_sum, gradient;  // gradient [rows, ranks * width]
};

struct ShardOptions {
  double softcap = 0;
  double capped_at = 0;  ///< the logits are capped already
  double temperature = 1;
};

/// logits [rows, ranks * width], whose padding is never read: it holds NaN.
ShardResult run_sharded(const at::Tensor& logits, const at::Tensor& targets, int64_t width, int64_t vocabulary,
                        const ShardOptions& options = {}) {
  const int64_t rows = logits.size(0);
  const auto stats = wide(logits.scalar_type());
  std::vector<at::Tensor> shards, maxima, sums, target_logits;
  for (int64_t first = 0; first < logits.size(1); first += width) {
    shards.push_back(logits.slice(1, first, first + width).contiguous());
    softcap_forward(shards.back(), options.softcap);
    maxima.push_back(unwritten({rows}, stats));
    cross_entropy_shard_max(maxima.back(), shards.back(), first, vocabulary, options.temperature);
  }
  const auto row_max = at::amax(at::stack(maxima), 0);
  for (size_t i = 0; i < shards.size(); ++i) {
    sums.push_back(unwritten({rows}, stats));
    target_logits.push_back(unwritten({rows}, stats));
    cross_entropy_shard_sum(sums[i], target_logits[i], shards[i], row_max, targets, static_cast<int64_t>(i) * width,
                            vocabulary, {}, options.temperature);
  }
  const auto sum_exp = at::stack(sums).sum(0), target_logit = at::stack(target_logits).sum(0);
  ShardResult result{at::full({1}, kHeld, at::TensorOptions().dtype(at::kDouble)), {}};
  cross_entropy_shard_loss(result.loss_sum, row_max, sum_exp, target_logit, targets);
  for (size_t i = 0; i < shards.size(); ++i)
    cross_entropy_shard_backward(shards[i], row_max, sum_exp, targets, kLossScale, static_cast<int64_t>(i) * width,
                                 vocabulary, options.softcap + options.capped_at, {}, options.temperature);
  result.gradient = at::cat(shards, 1);
  return result;
}

at::Tensor padded_logits(const ShardCase& c, at::ScalarType dtype) {
  auto logits = random({c.rows, c.ranks * c.width}, dtype, 1) * 4;
  logits.slice(1, c.vocabulary).fill_(NAN);
  return logits;
}

TEST(CrossEntropyShard, AgreesWithTheReference) {
  for_each_case([](at::ScalarType dtype) {
    for (const ShardCase& c : kShardCases) {
      SCOPED_TRACE(c.vocabulary);
      const auto logits = padded_logits(c, dtype), targets = some_targets(c.rows, c.vocabulary);
      const auto reference = [&](const auto& in) {
        return reference::cross_entropy_of_logits(in[0], targets, c.vocabulary);
      };
      const auto loss = reference(std::vector{logits.to(at::kDouble)});
      const auto gradient = autograd(reference, {logits}, at::scalar_tensor(kLossScale, at::kDouble))[0];
      const auto result = run_sharded(logits, targets, c.width, c.vocabulary);
      EXPECT_LE(relative_error(result.loss_sum - kHeld, loss.reshape({1})), std::min(tolerance(dtype), 2e-6));
      expect_close(result.gradient, gradient, "gradient");
      EXPECT_TRUE(result.gradient.slice(1, c.vocabulary).eq(0).all().item<bool>()) << "padding";
      EXPECT_TRUE(result.gradient.index({targets.eq(-100)}).eq(0).all().item<bool>()) << "not supervised";
    }
  });
}

TEST(CrossEntropyShard, OfCappedLogitsAgreesWithTheReference) {
  for_each_case([](at::ScalarType dtype) {
    for (const ShardCase& c : kShardCases) {
      SCOPED_TRACE(c.vocabulary);
      const double cap = 5;
      const auto logits = padded_logits(c, dtype), targets = some_targets(c.rows, c.vocabulary);
      const auto reference = [&](const auto& in) {
        return reference::cross_entropy_of_logits(in[0], targets, c.vocabulary, cap);
      };
      const auto loss = reference(std::vector{logits.to(at::kDouble)});
      const auto gradient = autograd(reference, {logits}, at::scalar_tensor(kLossScale, at::kDouble))[0];
      const auto result = run_sharded(logits, targets, c.width, c.vocabulary, {.softcap = cap});
      EXPECT_LE(relative_error(result.loss_sum - kHeld, loss.reshape({1})), tolerance(dtype));
      expect_close(result.gradient, gradient, "gradient");
      EXPECT_TRUE(result.gradient.slice(1, c.vocabulary).eq(0).all().item<bool>()) << "padding";
    }
  });
}

// Logits of two bytes are not rounded again when they are divided: the result is that of the same logits in float32.
TEST(CrossEntropyShard, DividesByATemperatureInTheStatisticsDtype) {
  for_each_case([](at::ScalarType dtype) {
    constexpr int64_t kRows = 37, kVocabulary = 101;
    const auto logits = random({kRows, kVocabulary}, dtype, 1) * 4, targets = some_targets(kRows, kVocabulary);
    for (const double cap : {0.0, 5.0}) {
      const auto capped = logits.clone();
      softcap_forward(capped, cap);
      const double temperature = 0.7;
      const auto loss_of = [&](const auto& in) {
        return reference::cross_entropy_of_logits(in[0] / temperature, targets, kVocabulary);
      };
      const auto exact = capped.to(at::kDouble);
      const auto loss = loss_of(std::vector{exact});
      auto gradient = autograd(loss_of, {exact}, at::scalar_tensor(kLossScale, at::kDouble))[0];
      if (cap > 0) gradient = gradient * (1 - (exact / cap).square());
      const auto result = run_sharded(capped.clone(), targets, kVocabulary, kVocabulary,
                                      {.capped_at = cap, .temperature = temperature});
      EXPECT_LE(relative_error(result.loss_sum - kHeld, loss.reshape({1})), std::min(tolerance(dtype), 2e-6));
      expect_close(result.gradient, gradient, "gradient");
    }
  });
}

TEST(CrossEntropyShard, WithOneRankHasTheBitsOfTheWholeOperation) {
  for_each_case([](at::ScalarType dtype) {
    // The identity as weight: the product leaves x as it is, and dx is the gradient of the logits itself.
    const auto x = random({31, 67}, dtype, 1) * 3, w = at::eye(67).to(dtype), targets = some_targets(31, 67);
    const auto loss_sum = unwritten({1}, at::kDouble), dx = unwritten(x.sizes(), dtype), dw = at::empty_like(w);
    for (const double cap : {0.0, 4.0}) {
      cross_entropy_forward_backward(loss_sum, dx, dw, x, w, targets, kLossScale, at::empty_like(x), {}, cap);
      const auto row_max = unwritten({31}, wide(dtype)), sum_exp = unwritten({31}, wide(dtype)),
                 target_logit = unwritten({31}, wide(dtype)), logits = x.clone(), ours = at::zeros({1}, at::kDouble);
      softcap_forward(logits, cap);
      cross_entropy_shard_max(row_max, logits, 0, 67);
      cross_entropy_shard_sum(sum_exp, target_logit, logits, row_max, targets, 0, 67);
      cross_entropy_shard_loss(ours, row_max, sum_exp, target_logit, targets);
      cross_entropy_shard_backward(logits, row_max, sum_exp, targets, kLossScale, 0, 67, cap);
      expect_same_bits(ours, loss_sum, "loss");
      expect_same_bits(logits, dx, "gradient");
    }
  });
}

TEST(CrossEntropyShard, BackwardAgreesWithFiniteDifferences) {
  const auto logits = random({6, 12}, at::kDouble, 1), targets = some_targets(6, 11);
  const auto loss = [&](const auto& in) { return run_sharded(in[0], targets, 4, 11).loss_sum; };
  const auto expected = finite_differences(loss, {logits}, at::full({1}, kLossScale, at::kDouble))[0];
  EXPECT_LE(relative_error(run_sharded(logits, targets, 4, 11).gradient, expected), 1e-8);
}

TEST(CrossEntropyShard, PhasesSayWhatARankHolds) {
  const auto logits = at::tensor({1.0f, 5.0f, 2.0f, 9.0f, 3.0f, 4.0f}).view({2, 3});
  const auto row_max = unwritten({2}, at::kFloat), sum = unwritten({2}, at::kFloat),
             target = unwritten({2}, at::kFloat);
  cross_entropy_shard_max(row_max, logits, 3, 5);  // columns 3 and 4; 5 is padding
  EXPECT_TRUE(row_max.equal(at::tensor({5.0f, 9.0f})));
  cross_entropy_shard_sum(sum, target, logits, row_max, at::tensor({4, 2}, at::kLong), 3, 5);
  EXPECT_FLOAT_EQ(sum[0].item<float>(), 1 + std::exp(-4.0f));
  EXPECT_TRUE(target.equal(at::tensor({5.0f, 0.0f}))) << "another rank holds id 2";
  cross_entropy_shard_sum(sum, target, logits, row_max, at::tensor({-100, 3}, at::kLong), 3, 5);
  EXPECT_TRUE(target.equal(at::tensor({0.0f, 9.0f})));
  EXPECT_EQ(sum[0].item<float>(), 0) << "not supervised";
  cross_entropy_shard_max(row_max, logits, 6, 5);
  EXPECT_TRUE(row_max.eq(-INFINITY).all().item<bool>()) << "padding only";
}

TEST(CrossEntropyShard, SurvivesLargeLogitsAndShowsNaN) {
  auto logits = at::eye(6) * 1e4;
  const auto targets = at::tensor({0, 1, 2, 3, 0, 5}, at::kLong);
  const auto result = run_sharded(logits, targets, 2, 6);
  EXPECT_DOUBLE_EQ(result.loss_sum.item<double>(), kHeld + 1e4);
  EXPECT_TRUE(result.gradient.isfinite().all().item<bool>());
  logits[3][2] = NAN;
  EXPECT_TRUE(std::isnan(run_sharded(logits, targets, 2, 6).loss_sum.item<double>()));
}

TEST(CrossEntropyShard, HasTheSameBitsOnAnyNumberOfThreads) {
  const auto logits = random({300, 514}, at::kBFloat16, 1), targets = some_targets(300, 500);
  expect_same_on_all_threads([&] {
    const auto result = run_sharded(logits, targets, 257, 500);
    return std::vector{result.loss_sum, result.gradient};
  });
}

TEST(CrossEntropyShard, NamesABadTargetAndABadTensor) {
  const auto logits = at::zeros({2, 4}), statistics = at::ones({2}), good = at::tensor({1, -100}, at::kLong);
  const auto refusal = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const ShapeError& error) {
      return error.what();
    }
    return "accepted";
  };
  for (const int64_t bad : {10, -1, -99}) {
    const auto targets = at::tensor(std::vector<int64_t>{1, bad});
    const auto text = "targets[1] = " + std::to_string(bad) + " is outside the vocabulary of ";
    EXPECT_EQ(refusal([&] { cross_entropy_shard_sum(statistics, statistics, logits, statistics, targets, 4, 10); }),
              "cross_entropy_shard_sum: " + text + "10; use 0 to 9, or -100 for a token that is not supervised");
    EXPECT_THAT(refusal([&] { cross_entropy_shard_backward(logits, statistics, statistics, targets, 1, 4, 10); }),
                testing::StartsWith("cross_entropy_shard_backward: " + text + "10"));
    if (bad < 0) {
      EXPECT_THAT(refusal([&] {
                    cross_entropy_shard_loss(at::zeros({1}, at::kDouble), statistics, statistics, statistics, targets);
                  }),
                  testing::StartsWith("cross_entropy_shard_loss: " + text));
    }
  }
  EXPECT_THAT(refusal([&] { cross_entropy_shard_max(statistics.to(at::kDouble), logits, 0, 4); }),
              testing::HasSubstr("row_max is CPU float64 [2]; it must be contiguous CPU float32 [2]"));
  EXPECT_THAT(refusal([&] { cross_entropy_shard_max(statistics, logits.t().contiguous().t(), 0, 4); }),
              testing::HasSubstr("logits is non-contiguous"));
  EXPECT_THAT(refusal([&] { cross_entropy_shard_max(statistics, logits, -4, 4); }), testing::HasSubstr("first=-4"));
  EXPECT_EQ(refusal([&] { cross_entropy_shard_max(statistics, logits, 0, 4, 0); }),
            "cross_entropy_shard_max: temperature = 0; it must be finite and above 0");
  EXPECT_THAT(refusal([&] { cross_entropy_shard_loss(at::zeros({1}), statistics, statistics, statistics, good); }),
              testing::HasSubstr("loss_sum is CPU float32 [1]"));
}

// Label smoothing and z-loss in one: rows with weights of their own, and the sum of logits.
TEST(CrossEntropyShard, WeightsOfRowsGiveTheGradientOfASmoothedLoss) {
  constexpr int64_t kRows = 21, kVocabulary = 67;
  constexpr double kSmoothing = 0.2, kZ = 0.05;
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const double softcap : {0.0, 3.0}) {
      SCOPED_TRACE(testing::Message() << c10::toString(dtype) << ", softcap " << softcap);
      const at::Tensor logits = random({kRows, kVocabulary}, dtype, 3) * 4;
      at::Tensor targets = at::arange(kRows, at::kLong) * 3 % kVocabulary;
      targets[4] = -100;
      const auto loss_of = [&](const std::vector<at::Tensor>& in) {
        const at::Tensor capped = softcap > 0 ? softcap * at::tanh(in[0] / softcap) : in[0];
        const at::Tensor log_sum = at::logsumexp(capped, 1),
                         logp = capped.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1) - log_sum;
        const at::Tensor each =
            -(1 - kSmoothing) * logp + kSmoothing * (log_sum - capped.mean(1)) + kZ * log_sum.square();
        return at::where(targets == -100, at::zeros_like(each), each);
      };
      const at::Tensor expected =
          autograd(loss_of, {logits.to(at::kDouble)}, at::full({kRows}, kLossScale, at::kDouble))[0];

      const at::Tensor x = logits.clone();
      const auto stats = wide(dtype);
      const at::Tensor row_max = unwritten({kRows}, stats), sum_exp = unwritten({kRows}, stats),
                       target_logit = unwritten({kRows}, stats), logit_sum = unwritten({kRows}, stats),
                       weights = at::zeros({kRows, 3}, at::kDouble);
      softcap_forward(x, softcap);
      cross_entropy_shard_max(row_max, x, 0, kVocabulary);
      cross_entropy_shard_sum(sum_exp, target_logit, x, row_max, targets, 0, kVocabulary, logit_sum);
      expect_close(logit_sum, at::where(targets == -100, at::zeros({kRows}, at::kDouble), x.to(at::kDouble).sum(1)),
                   "sums of logits");
      weights.select(1, 0).copy_(kLossScale * (1 + 2 * kZ * (sum_exp.to(at::kDouble).log() + row_max)));
      weights.select(1, 1).fill_(kLossScale * (1 - kSmoothing));
      weights.select(1, 2).fill_(kLossScale * kSmoothing / kVocabulary);
      cross_entropy_shard_backward(x, row_max, sum_exp, targets, 0, 0, kVocabulary, softcap, weights);
      expect_close(x, expected, "gradient");
    }
}

}  // namespace
}  // namespace trireme::ops::test
