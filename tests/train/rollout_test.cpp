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
  const Rollout third{.number = 2, .prompts_read = 12, .prompts_before = 8};
  EXPECT_DOUBLE_EQ(passes(settings, third, 1, 12), 9.0 / 12);
  EXPECT_DOUBLE_EQ(passes(settings, third, 3, 12), 11.0 / 12);
  EXPECT_EQ(passes(settings, third, 4, 12), 1);
  EXPECT_EQ(passes(settings, third, 2, 5), 2);
  const Rollout first{.number = 0, .prompts_read = 4};
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
  settings.train.max_steps = 3;
  EXPECT_EQ(steps_of_run(settings, 12), 3);
  settings.train.epochs.reset();
  EXPECT_EQ(steps_of_run(settings, 12), 3);
  settings.train.max_steps.reset();
  EXPECT_EQ(steps_of_run(settings, 12), 0);
  settings.train.epochs = 1'000'000'000'000'000'000;
  EXPECT_GT(steps_of_run(settings, 12), int64_t{1} << 60);  // more than a number holds
}

TEST(Rollout, KeepsWhatItReadInACheckpoint) {
  const Rollout rollout{.number = 2, .prompts_read = 12, .prompts_before = 8};
  EXPECT_EQ(parse_rollout(to_json(rollout), "a test"), rollout);
  const Rollout older = parse_rollout(R"({"number": 2, "prompts_read": 12, "measures": [], "groups": []})", "a test");
  EXPECT_EQ(older.prompts_before, 12);  // counted as learned, as it was then
}

}  // namespace
}  // namespace trireme::train
