// The names and the values of measures. tests/adapt/preferences_judge.py compares them with TRL.
#include "trireme/train/measures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::train {
namespace {

using model::PairLoss;
using testing::ElementsAre;

std::vector<base::Measured> measured(std::vector<model::WeightedPairLoss> losses) {
  model::Model model;
  model.objective.pairs = std::move(losses);
  const std::vector<double> means = {1, 2, 3, 4, 5, 6, 7};
  return measures_of(model, 1.0, means, "val_");
}

std::vector<std::string> names(const std::vector<base::Measured>& all) {
  std::vector<std::string> names;
  for (const base::Measured& measure : all) names.push_back(measure.name);
  return names;
}

TEST(PairMeasures, ALikelihoodIsInNatsATokenWhateverItsWeight) {
  const auto all = measured({{PairLoss::sigmoid, 3}, {PairLoss::sft, 0.25}});
  EXPECT_EQ(all.size(), 7u);
  EXPECT_EQ(all.back(), (base::Measured{"val_likelihood", 7 / 0.25}));
}

TEST(PairMeasures, WithoutALikelihoodThereIsNone) {
  EXPECT_THAT(names(measured({{PairLoss::simpo, 1}})),
              ElementsAre("val_rewards/chosen", "val_rewards/rejected", "val_rewards/accuracies", "val_rewards/margins",
                          "val_logps/chosen", "val_logps/rejected"));
}

TEST(PairMeasures, SftAloneHasNoRewards) {
  EXPECT_THAT(names(measured({{PairLoss::sft, 1}})),
              ElementsAre("val_logps/chosen", "val_logps/rejected", "val_likelihood"));
}

}  // namespace
}  // namespace trireme::train
