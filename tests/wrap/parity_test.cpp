// Wrapped modules on every strategy and pipeline equal the same modules in a plain LibTorch loop.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support.h"
#include "trireme/base/error.h"

namespace trireme::engine {
namespace {

constexpr plan::Strategy kStrategies[] = {plan::Strategy::no_shard, plan::Strategy::zero1,
                                          plan::Strategy::shard_grad_op, plan::Strategy::full_shard};

class WrapParity : public testing::TestWithParam<int> {
 protected:
  WrapJob job{.task = own_model::tasks()[static_cast<size_t>(GetParam())]};
  WrapOutcome plain = train_plainly(job);
  // Poisoned memory would show a read of weights or boundaries after their life. Not for the MLP: the guard bytes of a
  // boundary gradient that is smaller than the one it takes over are written into that one, before it is read.
  void SetUp() override { job.poison = GetParam() != 0; }
  void expect_plain(const char* what) { EXPECT_LE(distance(train(job), plain), kTolerance) << what; }
};

TEST_P(WrapParity, ThreePlainStepsChangeTheModel) {
  ASSERT_EQ(plain.losses.size(), 3U);
  EXPECT_GT(std::abs(plain.losses[2] - plain.losses[0]), 1e-3);  // or the tests below would compare nothing
  EXPECT_GT(plain.norms[0], kMaxNorm);  // clipping takes part
}

TEST_P(WrapParity, EveryStrategyOnOneAndTwoRanks) {
  for (const int ranks : {1, 2})
    for (const plan::Strategy strategy : kStrategies) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, strategy " << static_cast<int>(strategy));
      job.mesh = {.shard = ranks};
      job.strategy = strategy;
      expect_plain("");
    }
}

TEST_P(WrapParity, HybridShardingOnFourRanks) {
  job.mesh = {.replicate = 2, .shard = 2};
  for (const plan::Strategy strategy : {plan::Strategy::shard_grad_op, plan::Strategy::full_shard}) {
    job.strategy = strategy;
    expect_plain(strategy == plan::Strategy::full_shard ? "full_shard" : "shard_grad_op");
  }
}

TEST_P(WrapParity, EveryPipelineOnTwoRanks) {
  job.mesh = {.pp = 2, .shard = 1};
  for (const char* name : {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v"}) {
    job.pipeline.schedule = name;
    expect_plain(name);
  }
}

TEST_P(WrapParity, TenStepsOfTheOtherOptimizersOfTorchOptim) {
  for (const char* optimizer : {"Adam", "SGD"}) {
    SCOPED_TRACE(optimizer);
    job.optimizer = optimizer;
    job.steps = 10;
    plain = train_plainly(job);
    job.mesh = {.shard = 2};
    job.strategy = plan::Strategy::full_shard;
    expect_plain("full_shard");
    job.strategy = plan::Strategy::zero1;
    expect_plain("zero1");
  }
}

TEST_P(WrapParity, APipelineOfShardedStages) {
  job.mesh = {.pp = 2, .shard = 2};
  job.strategy = plan::Strategy::full_shard;
  expect_plain("");
}

TEST_P(WrapParity, GradientsThatAreAddedUpOnTheirRank) {
  job.local_accumulation = true;
  for (const comm::MeshSizes& mesh :
       {comm::MeshSizes{.shard = 1}, comm::MeshSizes{.shard = 2}, comm::MeshSizes{.replicate = 2, .shard = 2},
        comm::MeshSizes{.pp = 2, .shard = 1}})
    for (const plan::Strategy strategy : {plan::Strategy::no_shard, plan::Strategy::full_shard}) {
      job.mesh = mesh;
      job.strategy = strategy;
      expect_plain(strategy == plan::Strategy::full_shard ? "full_shard" : "no_shard");
    }
}

TEST_P(WrapParity, FullRecomputation) {
  job.recompute = {.mode = schedule::Recompute::full};
  for (const comm::MeshSizes& mesh : {comm::MeshSizes{.shard = 2}, comm::MeshSizes{.pp = 2, .shard = 1}})
    for (const plan::Strategy strategy : {plan::Strategy::no_shard, plan::Strategy::full_shard}) {
      job.mesh = mesh;
      job.strategy = strategy;
      expect_plain("");
    }
}

TEST_P(WrapParity, StateThatRestsElsewhere) {
  using schedule::Tier;
  job.offload = {.optimizer = Tier::disk, .master = Tier::cpu, .gradients = Tier::cpu};
  job.strategy = plan::Strategy::full_shard;
  for (const comm::MeshSizes& mesh : {comm::MeshSizes{.shard = 1}, comm::MeshSizes{.pp = 2, .shard = 2}}) {
    job.mesh = mesh;
    expect_plain("");
  }
  for (const schedule::OffloadSettings& kept :
       {schedule::OffloadSettings{.parameters = Tier::cpu}, schedule::OffloadSettings{.activations = Tier::cpu}}) {
    job.offload = kept;
    EXPECT_THROW(train(job), UsageError);
  }
}

TEST_P(WrapParity, TheOptimizerInsideTheBackwardPass) {
  job.steps_in_backward = true;
  plain = train_plainly(job);
  for (const comm::MeshSizes& mesh :
       {comm::MeshSizes{.shard = 1}, comm::MeshSizes{.shard = 2}, comm::MeshSizes{.pp = 2, .shard = 1}})
    for (const plan::Strategy strategy : {plan::Strategy::zero1, plan::Strategy::full_shard}) {
      job.mesh = mesh;
      job.strategy = strategy;
      expect_plain(strategy == plan::Strategy::full_shard ? "full_shard" : "zero1");
    }
}

TEST_P(WrapParity, LowerPrecisionOnTwoRanksGivesTheBitsOfOne) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16, at::kHalf}) {
    job.mesh = {.shard = 1};
    job.strategy = plan::Strategy::no_shard;
    job.precision = {compute, at::kFloat};
    const WrapOutcome one = train(job);
    // Seven digits, or two and a half where a loss is a bfloat16, or three where it is a half; a wrong formula is off
    // by more.
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(one.losses[i], plain.losses[i], compute == at::kFloat ? 1e-4 : compute == at::kHalf ? 0.02 : 0.1);
    job.mesh = {.shard = 2};
    job.strategy = plan::Strategy::full_shard;
    EXPECT_EQ(distance(train(job), one), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, WrapParity, testing::Range(0, 3), [](const auto& info) {
  return std::string(std::array{"Mlp", "Encoder", "VisionTransformer"}[static_cast<size_t>(info.param)]);
});

}  // namespace
}  // namespace trireme::engine
