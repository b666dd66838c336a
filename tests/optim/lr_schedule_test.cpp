#include "trireme/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace trireme::optim {
namespace {

TEST(LrSchedule, RisesInAStraightLineToThePeak) {
  const LrSchedule schedule{.peak = 2.0, .min = 0.5, .warmup_steps = 4, .max_steps = 10};
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(2), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(3), 1.5);
  EXPECT_DOUBLE_EQ(schedule.at(4), 2.0);
}

TEST(LrSchedule, CosineFallsToTheMinimumAtTheLastStep) {
  const LrSchedule schedule{.peak = 2.0, .min = 0.5, .warmup_steps = 4, .max_steps = 10};
  EXPECT_DOUBLE_EQ(schedule.at(6), 0.5 + 1.5 * 0.75);  // a third of the way: (1 + cos 60 degrees) / 2
  EXPECT_DOUBLE_EQ(schedule.at(7), 1.25);              // half way
  EXPECT_DOUBLE_EQ(schedule.at(8), 0.5 + 1.5 * 0.25);
  EXPECT_DOUBLE_EQ(schedule.at(10), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(1000), 0.5);
}

TEST(LrSchedule, LinearFallsInAStraightLine) {
  const LrSchedule schedule{.peak = 2.0, .min = 0.0, .warmup_steps = 2, .max_steps = 6, .decay = LrDecay::linear};
  EXPECT_DOUBLE_EQ(schedule.at(3), 1.5);
  EXPECT_DOUBLE_EQ(schedule.at(4), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(5), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(6), 0.0);
}

TEST(LrSchedule, ConstantStaysAtThePeak) {
  const LrSchedule schedule{.peak = 2.0, .min = 0.1, .warmup_steps = 2, .max_steps = 6, .decay = LrDecay::constant};
  EXPECT_DOUBLE_EQ(schedule.at(1), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(2), 2.0);
  EXPECT_DOUBLE_EQ(schedule.at(100), 2.0);
}

TEST(LrSchedule, WithoutWarmupOrWithNothingElseIsDefinedAtEveryStep) {
  EXPECT_DOUBLE_EQ((LrSchedule{.peak = 2.0, .min = 0.0, .max_steps = 4, .decay = LrDecay::linear}.at(1)), 1.5);
  const LrSchedule all_warmup{.peak = 2.0, .min = 0.5, .warmup_steps = 4, .max_steps = 4};
  EXPECT_DOUBLE_EQ(all_warmup.at(4), 2.0);
  EXPECT_DOUBLE_EQ(all_warmup.at(5), 0.5);
  for (int64_t step = 0; step < 10; ++step) EXPECT_TRUE(std::isfinite(all_warmup.at(step)));
}

TEST(LrSchedule, ThatNeedsTheEndOfARunWithoutOneIsConstantAfterTheWarmUp) {
  for (const LrDecay decay : {LrDecay::cosine, LrDecay::linear, LrDecay::wsd, LrDecay::polynomial,
                              LrDecay::one_cycle_lr, LrDecay::warmup_decay_lr, LrDecay::warmup_cosine_lr}) {
    const LrSchedule schedule{.peak = 2.0, .min = 0.1, .warmup_steps = 2, .max_steps = 0, .decay = decay};
    EXPECT_DOUBLE_EQ(schedule.at(1), 1.0);
    EXPECT_DOUBLE_EQ(schedule.at(2), 2.0);
    EXPECT_DOUBLE_EQ(schedule.at(1'000'000), 2.0);
  }
}

TEST(LrSchedule, IsFiniteAndNotNegativeAtEveryStepOfEveryRun) {
  for (const auto& choice : choices_of(LrDecay{}))
    for (const int64_t warmup : {0, 1, 2, 5})
      for (const int64_t steps : {0, 1, 2, 5, 7})
        for (const int64_t first : {0, 1})
          for (int64_t step = 1; step <= 12; ++step) {
            const LrSchedule schedule{.peak = 2.0,
                                      .min = 0.5,
                                      .warmup_steps = warmup,
                                      .max_steps = steps,
                                      .decay = choice.value,
                                      .settings = {.first_step = first}};
            SCOPED_TRACE(std::string(choice.name) + " " + std::to_string(warmup) + " of " + std::to_string(steps) +
                         ", step " + std::to_string(step));
            EXPECT_TRUE(std::isfinite(schedule.at(step)));
            EXPECT_GE(schedule.at(step), 0);
          }
}

}  // namespace
}  // namespace trireme::optim
