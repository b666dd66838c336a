// Every strategy on every number of ranks computes what one rank computes.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.h"
#include "trireme/base/error.h"

namespace trireme::engine {
namespace {

constexpr plan::Strategy kStrategies[] = {plan::Strategy::no_shard, plan::Strategy::zero1,
                                          plan::Strategy::shard_grad_op, plan::Strategy::full_shard};

struct NamedPrecision {
  const char* name;
  model::Precision precision;
};
using model::Rounding;
const NamedPrecision kPrecisions[] = {
    {"Float32", kFloat32},
    {"Float64", kFloat64},
    {"Bf16Mixed", kMixed},
    {"HalfMixed", kHalfMixed},
    {"Bf16MixedAndGradients", {.compute = at::kBFloat16, .narrow_gradients = true}},
    {"Bf16MixedAndWideSlots", {.compute = at::kBFloat16, .wide_slots = true}},
    {"Bf16True", bfloat16_alone(Rounding::nearest)},
    {"Bf16TrueStochastic", bfloat16_alone(Rounding::stochastic)},
    {"Bf16TrueKahan", bfloat16_alone(Rounding::kahan)},
    {"Fp8Mixed", kFloat8Mixed},
};

class Parity : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(Parity, AnyStrategyOnAnyNumberOfRanksGivesTheBitsOfOneRank) {
  const auto [architecture, precision_index] = GetParam();
  const model::Precision precision = kPrecisions[precision_index].precision;
  Job job{.model = small_model(architecture), .precision = precision, .steps = precision == kFloat32 ? 20 : 6};
  const Outcome one = run(job);
  ASSERT_LT(one.losses.back(), one.losses.front());
  // Three ranks share four micro-batches unevenly.
  for (int ranks : {2, 3, 4})
    for (plan::Strategy strategy : kStrategies) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, strategy " << static_cast<int>(strategy));
      job.mesh = {.shard = ranks};
      job.strategy = strategy;
      expect_equal_bits(run(job), one);
    }
  for (plan::Strategy strategy : {plan::Strategy::shard_grad_op, plan::Strategy::full_shard}) {
    SCOPED_TRACE(testing::Message() << "hybrid, strategy " << static_cast<int>(strategy));
    job.mesh = {.replicate = 2, .shard = 2};
    job.strategy = strategy;
    expect_equal_bits(run(job), one);
  }
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<const char*, int>>& info) {
  return std::string(std::get<0>(info.param)) + kPrecisions[std::get<1>(info.param)].name;
}

INSTANTIATE_TEST_SUITE_P(All, Parity,
                         testing::Combine(testing::Values("llama", "gpt2", "gemma3"), testing::Range(0, 4)),
                         name_of_case);

INSTANTIATE_TEST_SUITE_P(Narrow, Parity, testing::Combine(testing::Values("llama"), testing::Range(4, 10)),
                         name_of_case);

TEST(ParityOverGloo, ShardedAndReplicatedRanksGiveTheBitsOfOneRank) {
  Job job{.model = small_llama(), .precision = kFloat32, .steps = 3};
  const Outcome one = run(job);
  job.backend = "gloo";
  job.mesh = {.shard = 2};
  for (plan::Strategy strategy : kStrategies) {
    job.strategy = strategy;
    expect_equal_bits(run(job), one);
  }
}

TEST(ParityOfPasses, RecomputationPrefetchAndLagChangeNoBit) {
  Job job{.model = small_llama(),
          .precision = kMixed,
          .mesh = {.shard = 2},
          .strategy = plan::Strategy::full_shard,
          .steps = 3};
  const Outcome plain = run(job);
  using Backward = schedule::PrefetchBackward;
  for (const schedule::Prefetch& prefetch :
       {schedule::Prefetch{.depth = 0}, schedule::Prefetch{.depth = 2}, schedule::Prefetch{.forward = false},
        schedule::Prefetch{.backward = Backward::post}, schedule::Prefetch{.backward = Backward::none},
        schedule::Prefetch{.depth = 3, .limit = 40000}})
    for (int lag : {0, 3}) {
      job.prefetch = prefetch;
      job.reduce_lag = lag;
      expect_equal_bits(run(job), plain);
    }
  job.prefetch = {};
  using Mode = schedule::Recompute;
  for (const schedule::RecomputeSettings& recompute :
       {schedule::RecomputeSettings{.mode = Mode::full}, schedule::RecomputeSettings{.mode = Mode::selective},
        schedule::RecomputeSettings{.mode = Mode::selective, .values = {"qkv", "attended"}},
        schedule::RecomputeSettings{.mode = Mode::full, .every = 2}}) {
    job.recompute = recompute;
    expect_equal_bits(run(job), plain);
  }
}

// How parameters are cut into groups changes what is gathered together, not what is computed. Sums of squares run over
// other blocks, so norms agree to rounding.
TEST(ParityOfGroupings, BlocksLayersParametersSizesAndNamedUnitsComputeTheSame) {
  using By = model::WrapBy;
  constexpr int64_t kEverything = int64_t{1} << 40;
  for (const model::ModelConfig& config : {small_llama(), small_gpt2(), small_gemma3()}) {
    Job job{.model = config, .precision = kFloat64, .mesh = {.shard = 3}, .strategy = plan::Strategy::full_shard};
    const Outcome plain = run(job);
    for (const model::Grouping& grouping :
         {model::Grouping{.by = By::layer}, model::Grouping{.by = By::parameter},
          model::Grouping{.min_num_params = 20000}, model::Grouping{.min_num_params = kEverything},
          model::Grouping{.own_group = {"block 1"}}}) {
      job.grouping = grouping;
      const bool spans = !grouping.own_group.empty() || grouping.min_num_params == kEverything;
      for (comm::MeshSizes mesh : {comm::MeshSizes{.shard = 3}, comm::MeshSizes{.pp = 2, .shard = 2}}) {
        job.mesh = mesh;
        if (spans && mesh.pp > 1) {  // a group of several stages
          EXPECT_THROW(run(job), UsageError);
          continue;
        }
        const Outcome other = run(job);
        EXPECT_LE(relative_distance(other.gradients, plain.gradients), 1e-12);
        EXPECT_LE(relative_distance(other.parameters, plain.parameters), 1e-10);
        EXPECT_NEAR(other.norms.back() / plain.norms.back(), 1, 1e-10);
      }
    }
  }
}

// Nothing depends on when something arrives.
TEST(Determinism, TwoRunsOfAnyMeshGiveTheSameBits) {
  std::vector<Job> jobs;
  for (const model::Precision& precision : {kFloat32, kMixed, kHalfMixed}) {
    Job job{.model = small_llama(), .precision = precision};
    job.mesh = {.pp = 2, .shard = 2, .tp = 2};
    job.strategy = plan::Strategy::full_shard;
    job.pipeline.schedule = "zb_v";
    job.pipeline.split = {1, 1, 1, 2};
    job.sequence_parallel = true;
    jobs.push_back(job);
    job = {.model = small_llama(), .precision = precision};
    job.mesh = {.replicate = 2, .shard = 2, .cp = 2};
    job.strategy = plan::Strategy::shard_grad_op;
    job.ordered = false;
    jobs.push_back(job);
    job.local_accumulation = true;
    job.mesh = {.shard = 4};
    jobs.push_back(job);
  }
  for (const Job& job : jobs) {
    const Outcome first = run(job), second = run(job);
    expect_equal_bits(first, second);
  }
}

TEST(Refusals, WhatOrderedCannotKeepIsRefusedInOneSentence) {
  Job job{.model = small_llama(), .precision = kFloat32};
  job.local_accumulation = true;
  try {
    run(job);
    FAIL() << "not refused";
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("set reduce fast"));
  }
}

// Boundaries larger than a mailbox, with ranks that wait in one queue for what another brings.
TEST(Pipelines, MessagesLargerThanAMailboxArrive) {
  Job job{.model = small_llama(), .precision = kFloat64, .steps = 1};
  job.model.max_position_embeddings = 512;
  job.shape = {4, 512};  // 4 x 512 x 48 x 8 bytes: three mailboxes
  const Outcome one = run(job);
  for (const char* schedule : {"1f1b", "gpipe", "zb_v", "interleaved_1f1b"}) {
    job.mesh = {.pp = 2, .shard = 1, .tp = 2};
    job.pipeline.schedule = schedule;
    const Outcome many = run(job);
    EXPECT_LE(relative_distance(many.gradients, one.gradients), 1e-10) << schedule;
  }
}

TEST(ParityOfPrecision, MixedPrecisionFollowsFloat32Loosely) {
  // bf16 keeps 8 bits: activations differ by about 4e-3, the loss by less; a wrong formula differs by far more.
  Job job{.model = small_llama(), .precision = kFloat32, .steps = 5};
  const Outcome exact = run(job);
  job.precision = kMixed;
  const Outcome mixed = run(job);
  job.precision = kHalfMixed;  // 11 bits
  const Outcome half = run(job);
  for (size_t i = 0; i < exact.losses.size(); ++i) {
    EXPECT_NEAR(mixed.losses[i], exact.losses[i], 2e-2);
    EXPECT_NEAR(half.losses[i], exact.losses[i], 3e-3);
  }
}

TEST(ParityOfEvaluation, TheHeldOutLossOfAFixedBatchDoesNotDependOnTheRanks) {
  Job job{.model = small_llama(), .precision = kFloat64, .steps = 1};
  const Outcome one = run(job);
  job.mesh = {.shard = 4};
  job.strategy = plan::Strategy::full_shard;
  EXPECT_NEAR(run(job).evaluation, one.evaluation, 1e-13);
}

}  // namespace
}  // namespace trireme::engine
