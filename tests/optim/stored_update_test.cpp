// Updates of weights, state and gradients that are stored in two bytes, beside the same update in float32.
#include "trireme/optim/stored_update.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::optim {
namespace {

constexpr int64_t kCount = 100003;  // several tiles
const OptimizerOptions kStep{.lr = 1e-2, .weight_decay = 0.1, .step = 3};
const std::vector<DecaySegment> kSegments = {{0, 30000, true}, {30000, 70001, false}, {70001, kCount, true, 0.5}};

at::Tensor draw(at::ScalarType dtype, int64_t seed, double scale = 1) {
  const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return (at::randn({kCount}, generator, at::TensorOptions().dtype(at::kDouble)) * scale).to(dtype);
}

StoredSpan span_of(at::ScalarType master, at::ScalarType gradient) {
  return {.master = draw(master, 1),
          .state = {draw(master, 2, 0.1), draw(master, 3, 0.1).square()},
          .gradient = draw(gradient, 4)};
}

StoredSpan widened(const StoredSpan& s) {
  StoredSpan wide{.master = s.master.to(at::kFloat), .gradient = s.gradient.to(at::kFloat)};
  for (const at::Tensor& state : s.state) wide.state.push_back(state.to(at::kFloat));
  return wide;
}

TEST(StoredUpdate, IsTheUpdateInFloat32RoundedOnce) {
  for (const auto master : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto gradient : {at::kFloat, at::kBFloat16, at::kHalf}) {
      StoredSpan s = span_of(master, gradient);
      s.compute = at::empty({kCount}, at::kHalf);
      const StoredSpan wide = widened(s);
      optimizer_update(wide.master, wide.state, wide.gradient, {}, kSegments, kStep);
      update_stored(s, kSegments, kStep);
      SCOPED_TRACE(std::string(c10::toString(master)) + " and gradients in " + c10::toString(gradient));
      EXPECT_TRUE(at::equal(s.master, wide.master.to(master)));
      for (size_t i = 0; i < s.state.size(); ++i) EXPECT_TRUE(at::equal(s.state[i], wide.state[i].to(master)));
      EXPECT_TRUE(at::equal(s.compute, wide.master.to(at::kHalf)));
    }
}

TEST(StoredUpdate, WeightsToComputeWithAreTakenBeforeWhatRoundingLoses) {
  StoredSpan s = span_of(at::kBFloat16, at::kFloat);
  s.compensation = at::zeros({kCount}, at::kBFloat16), s.compute = at::empty({kCount}, at::kFloat);
  const StoredSpan wide = widened(s);
  optimizer_update(wide.master, wide.state, wide.gradient, {}, kSegments, kStep);
  update_stored(s, kSegments, kStep);
  EXPECT_TRUE(at::equal(s.compute, wide.master));
}

TEST(StoredUpdate, TheNormOfTwoBytesIsThatOfTheirValues) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor gradient = draw(dtype, 4), of_two = at::empty({25}, at::kDouble), of_four = at::empty_like(of_two);
    stored_norm_partials(of_two, gradient);
    squared_norm_partials(of_four, gradient.to(at::kFloat));
    EXPECT_TRUE(at::equal(of_two, of_four));
  }
}

// 1,000 updates of a tenth of a step of bfloat16 each: to nearest none of them counts.
TEST(StoredUpdate, CompensationAndStochasticRoundingKeepWhatRoundingToNearestLoses) {
  const auto after = [](const char* how) {
    const std::string way = how;
    StoredSpan s{.master = at::ones({kCount}, at::kBFloat16),
                 .state = {at::zeros({kCount}, at::kBFloat16)},
                 .gradient = at::full({kCount}, -1.0, at::kBFloat16)};
    if (way == "kahan") s.compensation = at::zeros({kCount}, at::kBFloat16);
    s.stochastic = way == "stochastic";
    OptimizerOptions sgd{.rule = Rule::sgd, .lr = 0.1 / 128, .weight_decay = 0, .momentum = 1e-30};
    for (int step = 1; step <= 1000; ++step) {
      sgd.step = step, s.key = static_cast<uint64_t>(step) * 977;
      update_stored(s, std::vector<DecaySegment>{{0, kCount, false}}, sgd);
    }
    return s.master.to(at::kDouble);
  };
  const double exact = 1 + 100.0 / 128;
  EXPECT_EQ(after("nearest").max().item<double>(), 1);
  EXPECT_LE((after("kahan") - exact).abs().max().item<double>(), 1.0 / 128);
  const at::Tensor stochastic = after("stochastic");
  EXPECT_NEAR(stochastic.mean().item<double>(), exact, 1e-3);
  // The sum of 1,000 choices, each up with probability 0.1: a standard deviation of 9.5 steps.
  EXPECT_NEAR(stochastic.std().item<double>(), 9.5 / 128, 0.3 / 128);
}

TEST(StoredUpdate, RandomBitsDependOnTheElementAndTheKeyAlone) {
  const auto run = [](int64_t begin, uint64_t key, int threads) {
    at::set_num_threads(threads);
    StoredSpan s = span_of(at::kBFloat16, at::kFloat);
    s.master = s.master.narrow(0, begin, kCount - begin), s.gradient = s.gradient.narrow(0, begin, kCount - begin);
    for (at::Tensor& state : s.state) state = state.narrow(0, begin, kCount - begin);
    s.stochastic = true, s.key = key, s.first = begin;
    update_stored(s, std::vector<DecaySegment>{{0, kCount - begin, false}}, kStep);
    at::set_num_threads(1);
    return s.master.clone();
  };
  const at::Tensor whole = run(0, 5, 1);
  EXPECT_TRUE(at::equal(run(0, 5, 3), whole));
  EXPECT_TRUE(at::equal(run(40961, 5, 1), whole.narrow(0, 40961, kCount - 40961)));
  EXPECT_FALSE(at::equal(run(0, 6, 1), whole));
}

TEST(StoredUpdate, StochasticRoundingChoosesANeighbourAndKeepsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(stochastic_bfloat16(1.0f, 0xFFFF), 0x3F80);  // exact: nothing to choose
  EXPECT_EQ(stochastic_bfloat16(1.0f + 0x1p-8f, 0x7FFF), 0x3F80);
  EXPECT_EQ(stochastic_bfloat16(1.0f + 0x1p-8f, 0x8000), 0x3F81);
  EXPECT_EQ(stochastic_bfloat16(-kInfinity, 0xFFFF), 0xFF80);
  EXPECT_EQ(stochastic_bfloat16(std::nanf(""), 0xFFFF) & 0x7FC0, 0x7FC0);
}

TEST(StoredUpdate, RefusesHalvesThatAreToBeRoundedStochasticallyAndTensorsThatDoNotFit) {
  StoredSpan s = span_of(at::kHalf, at::kHalf);
  s.stochastic = true;
  EXPECT_THROW(update_stored(s, kSegments, kStep), ShapeError);
  s.stochastic = false, s.gradient = s.gradient.narrow(0, 0, 10);
  EXPECT_THROW(update_stored(s, kSegments, kStep), ShapeError);
}

}  // namespace
}  // namespace trireme::optim
