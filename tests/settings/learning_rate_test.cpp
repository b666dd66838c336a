#include "trireme/settings/derived.h"

#include "settings_test.h"

namespace trireme {
namespace {

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

}  // namespace
}  // namespace trireme
