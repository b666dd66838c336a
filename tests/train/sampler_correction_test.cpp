// Weights for how answers were drawn, by hand. tests/adapt/rewards_judge.py compares runs with TRL's own lines.
#include "trireme/train/sampler_correction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme::train {
namespace {

using testing::IsEmpty;

RolloutAnswer drawn(const std::vector<double>& ratios) {
  RolloutAnswer answer;
  for (const double ratio : ratios) {
    answer.tokens.push_back(7);
    answer.sampled.push_back(-1);
    answer.logprobs.push_back(std::log(ratio) - 1);
  }
  answer.reward = 1;
  return answer;
}

// Two answers that count, whose ratios are 3 and 0.36 as wholes, and one without a reward.
std::vector<RolloutGroup> groups() {
  RolloutGroup group;
  group.answers = {drawn({2, 1.5, 1}), drawn({0.4, 0.9}), drawn({5})};
  group.answers[2].reward.reset();
  return {group};
}

struct Corrected {
  std::vector<RolloutGroup> groups;
  std::map<std::string, double> measures;
};

Corrected correct(SamplerCorrection how, std::optional<double> most, std::optional<double> least = {}) {
  GrpoSettings settings;
  settings.sampler_is = how, settings.sampler_is_threshold = most, settings.sampler_is_min = least;
  Corrected c{.groups = groups(), .measures = {}};
  for (const base::Measured& m : set_corrections(settings, c.groups)) c.measures[m.name] = m.value;
  return c;
}

testing::Matcher<const std::vector<double>&> near(std::initializer_list<double> values) {
  std::vector<testing::Matcher<double>> each;
  for (const double value : values) each.push_back(testing::DoubleNear(value, 1e-15));
  return testing::ElementsAreArray(each);
}

TEST(SamplerCorrection, NoneLeavesEveryTokenAsItIs) {
  const Corrected c = correct(SamplerCorrection::none, 2);
  EXPECT_THAT(c.measures, IsEmpty());
  for (const RolloutAnswer& answer : c.groups[0].answers) EXPECT_THAT(answer.correction, IsEmpty());
}

TEST(SamplerCorrection, TruncatesTheWeightsOfTokens) {
  const Corrected c = correct(SamplerCorrection::token_truncate, 1.2);
  EXPECT_THAT(c.groups[0].answers[0].correction, near({1.2, 1.2, 1}));
  EXPECT_THAT(c.groups[0].answers[1].correction, near({0.4, 0.9}));
  EXPECT_THAT(c.groups[0].answers[2].correction, IsEmpty()) << "it teaches nothing";
  EXPECT_NEAR(c.measures.at("sampler_is/mean"), (1.2 + 1.2 + 1 + 0.4 + 0.9) / 5, 1e-15);
  EXPECT_NEAR(c.measures.at("sampler_is/min"), 0.4, 1e-15);
  EXPECT_NEAR(c.measures.at("sampler_is/max"), 1.2, 1e-15);
  EXPECT_NEAR(c.measures.at("sampler_is/cut"), 2.0 / 5, 1e-15);
  EXPECT_NEAR(c.measures.at("sampler_is/logp_difference_max"), -std::log(0.4), 1e-15);
  EXPECT_NEAR(c.measures.at("sampler_is/logp_difference"),
              (std::log(2) + std::log(1.5) - std::log(0.4) - std::log(0.9)) / 5, 1e-15);
}

TEST(SamplerCorrection, LowerBoundsCutToo) {
  const Corrected truncated = correct(SamplerCorrection::token_truncate, {}, 0.5),
                  masked = correct(SamplerCorrection::token_mask, {}, 0.5);
  EXPECT_THAT(truncated.groups[0].answers[0].correction, near({2, 1.5, 1}));
  EXPECT_THAT(truncated.groups[0].answers[1].correction, near({0.5, 0.9}));
  EXPECT_THAT(masked.groups[0].answers[1].correction, near({0, 0.9}));
}

TEST(SamplerCorrection, MasksTokens) {
  const Corrected c = correct(SamplerCorrection::token_mask, 1.2);
  EXPECT_THAT(c.groups[0].answers[0].correction, near({0, 0, 1}));
  EXPECT_NEAR(c.measures.at("sampler_is/max"), 1, 1e-15) << "what is left out counts as 0";
}

TEST(SamplerCorrection, OfAnswersIsOneWeightForAllTokens) {
  const Corrected truncated = correct(SamplerCorrection::sequence_truncate, 2.5),
                  masked = correct(SamplerCorrection::sequence_mask, 2.5);
  EXPECT_THAT(truncated.groups[0].answers[0].correction, near({2.5, 2.5, 2.5}));
  EXPECT_THAT(truncated.groups[0].answers[1].correction, near({0.36, 0.36}));
  EXPECT_THAT(masked.groups[0].answers[0].correction, near({0, 0, 0}));
  EXPECT_THAT(masked.groups[0].answers[1].correction, near({0.36, 0.36}));
  EXPECT_NEAR(masked.measures.at("sampler_is/cut"), 0.5, 1e-15) << "of two answers one";
}

}  // namespace
}  // namespace trireme::train
