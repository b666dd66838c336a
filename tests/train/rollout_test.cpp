// What the steps of a rollout learn from. tests/adapt/rewards_judge.py compares runs with TRL's own lines.
#include "trireme/train/rollout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace trireme::train {
namespace {

// Each step of a rollout learns its share of the rollout's prompts.
TEST(Rollout, APassEndsWithTheLastStepThatLearnsFromItsPrompts) {
  GrpoSettings settings;
  settings.batch_size = 4, settings.mini_batch_size = 2, settings.num_iterations = 2;
  ASSERT_EQ(steps_of_rollout(settings), 4);
  const Rollout third{.place = {.number = 2}, .prompts_read = 12, .prompts_before = 8};
  EXPECT_DOUBLE_EQ(passes(settings, third, 1, 12), 9.0 / 12);
  EXPECT_DOUBLE_EQ(passes(settings, third, 3, 12), 11.0 / 12);
  EXPECT_EQ(passes(settings, third, 4, 12), 1);
  EXPECT_EQ(passes(settings, third, 2, 5), 2);
  const Rollout first{.place = {.number = 0}, .prompts_read = 4};
  EXPECT_EQ(passes(settings, first, 1, 4), 0.25);
}

// Passes run on into each other, so nothing is lost between two of them.
TEST(Rollout, ARunHasTheWholeRolloutsOfAllItsPasses) {
  Settings settings;
  settings.grpo.batch_size = 5, settings.grpo.num_iterations = 2;
  settings.train.epochs = 1;
  EXPECT_EQ(steps_of_run(settings, 12), 4);
  settings.train.epochs = 3;
  EXPECT_EQ(steps_of_run(settings, 12), 2 * 7);  // 36 prompts
  EXPECT_EQ(steps_of_run(settings, 1), 2);  // one rollout at least
  EXPECT_EQ(steps_of_run(settings, 12, {.number = 3, .begins = 6}), 2 * 7);
  EXPECT_EQ(steps_of_run(settings, 12, {.number = 0, .begins = 7}), 7 + 2 * 7);  // other prompts, from step 8 on
  EXPECT_EQ(steps_of_run(settings, 12, {.number = 3, .begins = 7}), 7 + 2 * 4);  // a rollout's last step was left out
  settings.train.max_steps = 3;
  EXPECT_EQ(steps_of_run(settings, 12), 3);
  settings.train.epochs.reset();
  EXPECT_EQ(steps_of_run(settings, 12), 3);
  settings.train.max_steps.reset();
  EXPECT_EQ(steps_of_run(settings, 12), 0);
  settings.train.epochs = 1'000'000'000'000'000'000;
  EXPECT_GT(steps_of_run(settings, 12), int64_t{1} << 60);  // more than a number holds
}

RolloutAnswer answer_of(int64_t tokens, bool is_truncated) {
  return {.tokens = std::vector<int64_t>(static_cast<size_t>(tokens), 7), .is_truncated = is_truncated, .reward = 1};
}

TEST(Rollout, MaskedAnswersCountInMeansOverAnswersIfAsked) {
  GrpoSettings settings{.mask_truncated_completions = true, .max_completion_length = 8};
  const auto weights = [&] {
    std::vector<RolloutGroup> groups(1);
    groups[0].answers = {answer_of(2, false), answer_of(8, true), answer_of(6, false), answer_of(8, true)};
    EXPECT_EQ(set_weights(settings, groups, {0, 1}), 8);
    EXPECT_EQ(groups[0].answers[1].weight, 0);
    return std::vector<double>{groups[0].answers[0].weight, groups[0].answers[2].weight};
  };
  EXPECT_EQ(weights(), (std::vector<double>{8.0 / (2 * 2), 8.0 / (2 * 6)}));
  settings.masked_completions_count = true;
  EXPECT_EQ(weights(), (std::vector<double>{8.0 / (4 * 2), 8.0 / (4 * 6)}));
  settings.loss_agg_mode = LossAggregation::sequence_mean_token_scale;
  EXPECT_EQ(weights(), (std::vector<double>{8.0 / (4 * 8), 8.0 / (4 * 8)}));
  settings.loss_agg_mode = LossAggregation::token_mean;
  EXPECT_EQ(weights(), (std::vector<double>{1, 1}));
}

// TRL's dapo divides by the tokens of the generation batch x gradient_accumulation_steps / steps_per_generation.
TEST(Rollout, AStepCanDivideByItsShareOfTheRolloutsTokens) {
  GrpoSettings settings{.batch_size = 2, .mini_batch_size = 1, .loss_agg_mode = LossAggregation::rollout_token_mean};
  settings.max_completion_length = 8, settings.mask_truncated_completions = true;
  std::vector<RolloutGroup> groups(2);
  groups[0].answers = {answer_of(1, false), answer_of(2, false)};
  groups[1].answers = {answer_of(4, false), answer_of(5, false), answer_of(8, true)};
  EXPECT_EQ(set_weights(settings, groups, {0, 1}), 3);
  EXPECT_EQ(groups[0].answers[0].weight, 3 / (12 * 0.5));  // the engine divides by 3
  EXPECT_EQ(set_weights(settings, groups, {1, 2}), 9);
  EXPECT_EQ(groups[1].answers[0].weight, 9 / (12 * 0.5));
  settings.mini_batch_size.reset();
  EXPECT_EQ(set_weights(settings, groups, {0, 2}), 12);
  EXPECT_EQ(groups[1].answers[0].weight, 1);
}

TEST(Rollout, KeepsWhatItReadInACheckpoint) {
  const Rollout rollout{.place = {.number = 2, .begins = 9}, .prompts_read = 12, .prompts_before = 8};
  EXPECT_EQ(parse_rollout(to_json(rollout), "a test"), rollout);
  Rollout named = rollout;
  named.groups.push_back({.failure = "caf\xE9"});  // a name that is not UTF-8
  EXPECT_EQ(parse_rollout(to_json(named), "a test").groups.front().failure, "caf\uFFFD");
  const Rollout older = parse_rollout(R"({"number": 2, "prompts_read": 12, "measures": [], "groups": []})", "a test");
  EXPECT_EQ(older.prompts_before, 12);  // counted as learned, as it was then
  EXPECT_EQ(older.place.begins, kUnknownBegin);
}

}  // namespace
}  // namespace trireme::train
