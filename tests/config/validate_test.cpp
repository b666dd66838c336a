#include "trireme/config/validate.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "config_test.h"
#include "trireme/config/mesh_shape.h"

namespace trireme::config {
namespace {

using testing::HasSubstr;

std::string verdict(const Settings& settings, int64_t ranks) {
  try {
    validate(settings, ranks);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Validate, DefaultsWorkOnOneRankAndOnPowersOfTwo) {
  for (const int64_t ranks : {1, 2, 4, 8, 16}) EXPECT_EQ(verdict(Settings{}, ranks), "") << ranks;
}

TEST(Validate, ABatchThatTheRanksDoNotDivideNamesWhatWouldFit) {
  EXPECT_EQ(verdict(Settings{}, 3),
            "error: 3 ranks cannot share a global batch of 64 in micro-batches of 4\n"
            "  64 = ranks x accumulation x 4 needs ranks in {1, 2, 4, 8, 16}; with 3 ranks, train.global_batch_size "
            "60 or 72 fits");
}

TEST(Validate, MicroBatchesMustDivideTheGlobalBatch) {
  Settings settings;
  settings.train.micro_batch_size = 5;
  EXPECT_THAT(verdict(settings, 2), HasSubstr("a global batch of 64 is not made of micro-batches of 5"));
  EXPECT_THAT(verdict(settings, 2), HasSubstr("60 or 70 fits"));
  settings.train.micro_batch_size = 128;
  EXPECT_THAT(verdict(settings, 1), HasSubstr(": 128 fits"));
}

TEST(Validate, AMeshMustHoldAllRanks) {
  Settings settings;
  settings.mesh.shard = 4;
  EXPECT_EQ(verdict(settings, 4), "");
  settings.mesh.replicate = 1;
  EXPECT_THAT(verdict(settings, 2), HasSubstr("shard 4 x cp 1 x tp 1 is 4 ranks, but 2 ranks start"));
}

TEST(Validate, StrategyAndMeshMustAgree) {
  Settings settings;
  settings.mesh.replicate = 2;
  settings.mesh.shard = 2;
  EXPECT_THAT(verdict(settings, 4), HasSubstr("hybrid_shard, which is not built yet"));
  settings.strategy = Strategy::no_shard;
  EXPECT_THAT(verdict(settings, 4), HasSubstr("mesh.shard is 2"));
}

TEST(Validate, AutoAxesFollowTheStrategy) {
  Settings settings;
  EXPECT_EQ(mesh_shape(settings, 4), (MeshShape{.shard = 4}));
  settings.strategy = Strategy::no_shard;
  EXPECT_EQ(mesh_shape(settings, 4), (MeshShape{.replicate = 4}));
}

TEST(Validate, SeveralRulesBrokenAreAllNamed) {
  Settings settings;
  settings.train.min_lr = 1;
  settings.data.name = "TextFiles";
  settings.train.max_seq_length = 512;
  settings.model.max_position_embeddings = 256;
  const std::string text = verdict(settings, 3);
  EXPECT_THAT(text, HasSubstr("error: 3 ranks cannot share"));
  EXPECT_THAT(text, HasSubstr("error: the learning rate cannot fall from 0.001 to 1"));
  EXPECT_THAT(text, HasSubstr("error: data TextFiles needs a place to read from"));
  EXPECT_THAT(text, HasSubstr("error: sequences of 512 tokens do not fit a model made for 256"));
}

TEST(Validate, ARunMustKnowWhenToStop) {
  Settings settings;
  EXPECT_THROW(validate_run_length(settings), UsageError);
  settings.train.max_steps = 1;
  validate_run_length(settings);
}

RC_GTEST_PROP(Validate, ItAcceptsExactlyTheBatchesThatAreProducts, ()) {
  Settings settings;
  settings.train.global_batch_size = *rc::gen::inRange<int64_t>(1, 200);
  settings.train.micro_batch_size = *rc::gen::inRange<int64_t>(1, 20);
  const auto ranks = *rc::gen::inRange<int64_t>(1, 20);
  bool is_product = false;
  for (int64_t steps = 1; steps <= 200; ++steps) {
    is_product |= ranks * steps * settings.train.micro_batch_size == settings.train.global_batch_size;
  }
  RC_ASSERT(verdict(settings, ranks).empty() == is_product);
  if (is_product) {
    RC_ASSERT(accumulation(settings, ranks) * ranks * settings.train.micro_batch_size ==
              settings.train.global_batch_size);
  }
}

}  // namespace
}  // namespace trireme::config
