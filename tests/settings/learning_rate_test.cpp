#include "trireme/settings/derived.h"

#include "settings_test.h"

namespace trireme {
namespace {

using testing::HasSubstr;

TEST(LearningRate, FollowsTheGlobalBatchAsAsked) {
  Settings settings;
  settings.optimizer.lr = 0.5;
  settings.optimizer.base_batch_size = 256;
  settings.train.global_batch_size = 1024;
  // Powers of two: every result is exact.
  for (const auto& [scaling, expected] :
       {std::pair{LrScaling::none, 0.5}, {LrScaling::linear, 2.0}, {LrScaling::sqrt, 1.0}}) {
    settings.optimizer.lr_scaling = scaling;
    EXPECT_EQ(scaled_lr(settings), expected);
  }
  settings.train.global_batch_size = 64;
  EXPECT_EQ(scaled_lr(settings), 0.25);
}

TEST(LearningRate, AScheduleRefusesWhatItDoesNotRead) {
  Settings settings;
  settings.lr_schedule.power = 2;
  EXPECT_THAT(verdict(settings, 1), HasSubstr("lr_schedule.power belongs to train.lr_decay polynomial; leave it out"));
  settings.train.lr_decay = LrDecay::polynomial;
  EXPECT_EQ(verdict(settings, 1), "");
  settings.lr_schedule.warmup_shape = optim::LrShape::exponential;
  EXPECT_THAT(verdict(settings, 1), HasSubstr("lr_schedule.warmup_shape is one of linear, cosine, 1-sqrt, log"));
}

TEST(LearningRate, AScheduleHasTheWarmUpAndTheEndOfItsSource) {
  EXPECT_EQ(warmup_steps(settings_from("--train.lr_decay WarmupLR")), 1000);
  EXPECT_EQ(warmup_steps(settings_from("--train.lr_decay WarmupLR --train.lr_warmup_steps 7")), 7);
  EXPECT_EQ(warmup_steps(settings_from("")), 100);
  EXPECT_EQ(lowest_lr(settings_from("--train.lr_decay wsd")), 0);
  EXPECT_EQ(lowest_lr(settings_from("--train.lr_decay polynomial")), 1e-7);
  EXPECT_DOUBLE_EQ(lowest_lr(settings_from("--train.lr_decay WarmupCosineLR --optimizer.lr 2e-3")), 2e-7);
}

}  // namespace
}  // namespace trireme
