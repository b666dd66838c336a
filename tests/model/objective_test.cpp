// Losses of pairs and of answers: derivatives by finite differences. tests/adapt/preferences_judge.py and
// rewards_judge.py compare values with TRL.
#include "trireme/model/objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace trireme::model {
namespace {

Objective with(PairLoss loss) {
  return {.pairs = {{loss, 1}}, .options = {.beta = 0.3, .label_smoothing = 0.1, .discopop_tau = 0.5}};
}

class PairLosses : public testing::TestWithParam<PairLoss> {};
std::vector<PairLoss> all_losses() {
  std::vector<PairLoss> losses;
  for (const auto& choice : choices_of(PairLoss{})) losses.push_back(choice.value);
  return losses;
}
INSTANTIATE_TEST_SUITE_P(All, PairLosses, testing::ValuesIn(all_losses()),
                         [](const auto& info) { return std::string(config::name_of(info.param)); });

TEST_P(PairLosses, DerivativesAreThoseOfFiniteDifferences) {
  constexpr double kStep = 1e-5;
  for (const double apart : {-7.0, -0.4, 0.3, 2.0, 11.0}) {
    const PairSums at{.chosen = -14 + apart,
                      .rejected = -15,
                      .reference_chosen = -13.2,
                      .reference_rejected = -14.9,
                      .chosen_tokens = 5,
                      .rejected_tokens = 7};
    const Objective objective = with(GetParam());
    const PairJudgement judged = judge_pair(objective, at);
    const auto slope = [&](double PairSums::* sum) {
      PairSums below = at, above = at;
      below.*sum -= kStep, above.*sum += kStep;
      return (judge_pair(objective, above).loss - judge_pair(objective, below).loss) / (2 * kStep);
    };
    const double limit = 1e-7 * std::max(1.0, std::abs(judged.loss));
    EXPECT_NEAR(judged.d_chosen, slope(&PairSums::chosen), limit) << "apart " << apart;
    EXPECT_NEAR(judged.d_rejected, slope(&PairSums::rejected), limit) << "apart " << apart;
  }
}

// Sums are far apart where a model has learned a pair well: nothing overflows.
TEST_P(PairLosses, StayFiniteFarFromZero) {
  if (GetParam() == PairLoss::discopop) return;  // its exponential part is meant to grow
  for (const double apart : {-5e4, 5e4}) {
    const PairJudgement judged = judge_pair(with(GetParam()), {.chosen = -6e4 + apart, .rejected = -6e4});
    EXPECT_TRUE(std::isfinite(judged.loss) && std::isfinite(judged.d_chosen) && std::isfinite(judged.d_rejected))
        << apart << ": " << judged.loss << " " << judged.d_chosen;
  }
}

TEST(Objective, WeightsAddLosses) {
  Objective both = with(PairLoss::sigmoid);
  both.pairs = {{PairLoss::sigmoid, 2}, {PairLoss::hinge, 0.5}};
  const PairSums sums{.chosen = -3, .rejected = -5, .reference_chosen = -4, .reference_rejected = -4.5};
  const PairJudgement a = judge_pair(with(PairLoss::sigmoid), sums), b = judge_pair(with(PairLoss::hinge), sums),
                      judged = judge_pair(both, sums);
  EXPECT_DOUBLE_EQ(judged.loss, 2 * a.loss + 0.5 * b.loss);
  EXPECT_DOUBLE_EQ(judged.d_chosen, 2 * a.d_chosen + 0.5 * b.d_chosen);
  EXPECT_DOUBLE_EQ(judged.chosen_reward, 0.3 * 1);
  EXPECT_DOUBLE_EQ(judged.rejected_reward, 0.3 * -0.5);
}

// A loss with a reference decides; else orpo and simpo do, wherever they stand.
TEST(Objective, RewardsDependOnNoOrderOfLosses) {
  const PairSums sums{.chosen = -3, .rejected = -5, .reference_chosen = -4, .chosen_tokens = 6};
  const auto reward = [&](std::vector<WeightedPairLoss> pairs) {
    Objective objective = with(PairLoss::sigmoid);
    objective.pairs = std::move(pairs);
    return judge_pair(objective, sums).chosen_reward;
  };
  for (const PairLoss by_mean : {PairLoss::simpo, PairLoss::orpo}) {
    EXPECT_DOUBLE_EQ(reward({{by_mean, 1}, {PairLoss::sft, 1}}), 0.3 * -0.5);
    EXPECT_DOUBLE_EQ(reward({{PairLoss::sft, 1}, {by_mean, 1}}), 0.3 * -0.5);
    EXPECT_DOUBLE_EQ(reward({{PairLoss::sigmoid, 1}, {by_mean, 1}}), 0.3);
    EXPECT_DOUBLE_EQ(reward({{by_mean, 1}, {PairLoss::sigmoid, 1}}), 0.3);
  }
}

TEST(Objective, AReplyThatIsCertainHasAFiniteSlope) {
  const PairSums certain{.chosen = 0, .rejected = -5, .chosen_tokens = 3, .rejected_tokens = 2};
  PairSums nearly = certain;
  nearly.chosen = -3e-9;
  const PairJudgement a = judge_pair(with(PairLoss::orpo), certain), b = judge_pair(with(PairLoss::orpo), nearly);
  EXPECT_TRUE(std::isfinite(a.loss) && std::isfinite(a.d_rejected));
  EXPECT_NEAR(a.d_chosen / b.d_chosen, 1, 1e-3);
}

TEST(Objective, ALikelihoodCountsWithTheWeightsOfItsLosses) {
  Objective objective = with(PairLoss::sigmoid);
  EXPECT_EQ(objective.likelihood_weight(), 0);
  EXPECT_TRUE(objective.compares_replies());
  objective.pairs = {{PairLoss::sft, 0.25}, {PairLoss::sigmoid, 3}, {PairLoss::orpo, 2}};
  EXPECT_DOUBLE_EQ(objective.likelihood_weight(), 2.25);
  EXPECT_FALSE(with(PairLoss::sft).compares_replies());
}

TEST(Objective, ReferencesAreNeededByLossesThatCompareWithThem) {
  EXPECT_TRUE(with(PairLoss::ipo).needs_reference());
  for (const PairLoss loss : {PairLoss::orpo, PairLoss::simpo, PairLoss::sft})
    EXPECT_FALSE(with(loss).needs_reference());
  EXPECT_FALSE(Objective{}.needs_reference());
}

/// An answer of three tokens, which count alike.
struct Answered {
  PolicyOptions options;
  double advantage = 0;
  double old[3] = {-2.0, -0.7, -1.4}, reference[3] = {-2.3, -0.6, -1.1};

  // One ratio of all tokens, where it is an answer's: so nothing is held back.
  double loss(const double (&logp)[3]) const {
    double mean = 0, sum = 0;
    for (int i = 0; i < 3; ++i) mean += (logp[i] - old[i]) / 3;
    for (int i = 0; i < 3; ++i) {
      const double ratio = std::exp(options.ratio == RatioOf::sequence ? mean : logp[i] - old[i]);
      const double clipped = std::clamp(ratio, 1 - options.epsilon, 1 + options.epsilon_high);
      const double distance = distance_of(options, logp[i] - reference[i]);
      sum += std::max(-advantage * ratio, -advantage * clipped) +
             options.beta * distance * (options.ratio_of_kl ? ratio : 1);
    }
    return sum;
  }
  PolicyJudgement judged(const double (&logp)[3], int token) const {
    PolicyToken t{.logp = logp[token], .old = old[token], .reference = reference[token], .advantage = advantage};
    for (int i = 0; i < 3; ++i) {
      t.mean_log_ratio += (logp[i] - old[i]) / 3;
      t.mean_distance += distance_of(options, logp[i] - reference[i]) / 3;
    }
    return judge_token(options, t);
  }
};

TEST(PolicyLoss, DerivativesAreThoseOfFiniteDifferences) {
  constexpr double kStep = 1e-6;
  for (const RatioOf ratio : {RatioOf::token, RatioOf::sequence})
    for (const bool of_kl : {false, true})
      for (const KlLoss kl : {KlLoss::kl, KlLoss::mse_kl, KlLoss::low_var_kl})
        for (const double advantage : {-0.8, 1.3}) {
          const Answered a{{.ratio = ratio, .beta = 0.3, .kl = kl, .ratio_of_kl = of_kl}, advantage};
          const double logp[3] = {-1.9, -0.75, -1.3};
          double loss = 0;
          for (int i = 0; i < 3; ++i) {
            double below[3], above[3];
            std::ranges::copy(logp, below), std::ranges::copy(logp, above);
            below[i] -= kStep, above[i] += kStep;
            EXPECT_NEAR(a.judged(logp, i).d_logp, (a.loss(above) - a.loss(below)) / (2 * kStep), 1e-8)
                << config::name_of(ratio) << " " << config::name_of(kl) << " times the ratio: " << of_kl;
            loss += a.judged(logp, i).loss;
          }
          EXPECT_NEAR(loss, a.loss(logp), 1e-12);
        }
}

}  // namespace
}  // namespace trireme::model
