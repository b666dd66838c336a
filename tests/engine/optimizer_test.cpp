// Every optimizer on ranks: the bits of one rank where ranks divide data and state, and memory for what it keeps only.
#include <gtest/gtest.h>

#include "support.h"
#include "trireme/base/error.h"

namespace trireme::engine {
namespace {

struct Choice {
  const char* name;
  double momentum = 0;
  bool nesterov = false;
  double lr = 3e-3;
};
constexpr Choice kChoices[] = {{"Adam"},
                               {"SGD", 0, false, 0.3},
                               {"SGD", 0.9, false, 0.3},
                               {"SGD", 0.9, true, 0.3},
                               {"Lion"},
                               {"Adagrad", 0, false, 0.03},
                               {"LARS", 0.9, false, 10},
                               {"LAMB", 0, false, 0.03},
                               {"Adafactor", 0, false, 0.01},
                               {"AdamW8bit", 0, false, 0.01},
                               {"Muon", 0.95, true, 0.02}};

Job job_with(const Choice& choice, const model::Precision& precision) {
  Job job{.model = small_llama(), .precision = precision, .steps = 10};
  job.optimizer = optim::options_of(choice.name);
  if (job.optimizer.rule == optim::Rule::adamw8bit) job.model.intermediate_size = 96;  // matrices that have codes
  job.optimizer.lr = choice.lr;
  job.optimizer.weight_decay = 0.1;
  job.optimizer.momentum = choice.momentum;
  job.optimizer.nesterov = choice.nesterov;
  job.grouping.matrices_apart = job.optimizer.rule == optim::Rule::muon;
  return job;
}

struct MeshDivision {
  const char* name;
  comm::MeshSizes mesh;
  plan::Strategy strategy;
};
const MeshDivision kData[] = {{"no_shard", {.shard = 2}, plan::Strategy::no_shard},
                              {"zero1", {.shard = 2}, plan::Strategy::zero1},
                              {"shard_grad_op", {.shard = 2}, plan::Strategy::shard_grad_op},
                              {"full_shard on 4", {.shard = 4}, plan::Strategy::full_shard},
                              {"hybrid", {.replicate = 2, .shard = 2}, plan::Strategy::full_shard}};
const MeshDivision kParts[] = {{"pp 2 x full_shard 2", {.pp = 2, .shard = 2}, plan::Strategy::full_shard},
                               {"tp 2 x cp 2", {.shard = 1, .cp = 2, .tp = 2}, plan::Strategy::full_shard}};

TEST(Optimizer, TenStepsOnRanksThatDivideDataAndStateAreThoseOfOneRankBitForBit) {
  for (const Choice& choice : kChoices)
    for (const model::Precision& precision : {kFloat32, kMixed}) {
      Job job = job_with(choice, precision);
      const Outcome one = run(job);
      EXPECT_LT(one.losses.back(), one.losses.front()) << choice.name << " does not learn";
      for (const MeshDivision& division : kData) {
        SCOPED_TRACE(std::string(choice.name) + " " + division.name);
        job.mesh = division.mesh;
        job.strategy = division.strategy;
        const Outcome ranks = run(job);
        EXPECT_TRUE(ranks.parameters.equal(one.parameters));
        EXPECT_EQ(ranks.norms, one.norms);
        EXPECT_EQ(ranks.planned, ranks.allocated);
      }
    }
}

// Lion's steps are signs: an element whose gradient is next to nothing may go the other way, two steps of 3e-3 apart.
TEST(Optimizer, TenStepsOnRanksThatDivideTheModelAreThoseOfOneRank) {
  for (const Choice& choice : kChoices) {
    if (std::string(choice.name) == "AdamW8bit") continue;  // in float32, and not over tensor-parallel ranks
    Job job = job_with(choice, kFloat64);
    const Outcome one = run(job);
    for (const MeshDivision& division : kParts) {
      SCOPED_TRACE(std::string(choice.name) + " " + division.name);
      job.mesh = division.mesh;
      job.strategy = division.strategy;
      EXPECT_LE(relative_distance(run(job).parameters, one.parameters), 1e-10);
    }
  }
}

TEST(Optimizer, AdamW8bitIsTheSameOnTensorParallelRanksWhoseBlocksAreWhole) {
  Job job = job_with({"AdamW8bit", 0, false, 0.001}, kFloat32);
  job.model.hidden_size = 512, job.model.intermediate_size = 512, job.model.head_dim = 128;
  job.model.num_hidden_layers = 1;
  job.steps = 5;
  const Outcome one = run(job);
  for (const bool sequence_parallel : {false, true}) {
    job.mesh = {.shard = 1, .tp = 2}, job.sequence_parallel = sequence_parallel;
    const Outcome parts = run(job);
    EXPECT_LE(relative_distance(parts.parameters, one.parameters), 2e-3);  // a rounding can choose another code
    EXPECT_NEAR(parts.losses.back(), one.losses.back(), 1e-3);
    EXPECT_EQ(parts.planned, parts.allocated);
    EXPECT_LT(parts.planned[0], one.planned[0]);
  }
}

TEST(Optimizer, AdamW8bitIsTheSameOnStagesAndRefusesWhatWouldCutItsBlocks) {
  Job job = job_with({"AdamW8bit", 0, false, 0.01}, kFloat32);
  const Outcome one = run(job);
  job.mesh = {.pp = 2, .shard = 2}, job.strategy = plan::Strategy::full_shard;
  EXPECT_LE(relative_distance(run(job).parameters, one.parameters), 2e-3);  // a rounding can choose another code
  job.mesh = {.shard = 1, .tp = 2};
  EXPECT_THROW(run(job), UsageError);
  EXPECT_THROW(run(job_with({"AdamW8bit", 0, false, 0.01}, kFloat64)), UsageError);
}

TEST(Optimizer, TheArenaHoldsWhatItKeepsAndNoMore) {
  const auto bytes = [](const Choice& choice) {
    Job job = job_with(choice, kFloat32);
    job.mesh = {.shard = 2};
    job.strategy = plan::Strategy::full_shard;
    job.steps = 1;
    return run(job).planned[0];
  };
  const int64_t two = bytes({"AdamW"}), one = bytes({"Lion"}), none = bytes({"SGD"});
  EXPECT_EQ(bytes({"Adam"}), two);
  EXPECT_EQ(bytes({"SGD", 0.9}), one);
  EXPECT_GT(two, one);
  EXPECT_EQ(two - one, one - none);
  // Matrices of 4,608 elements have codes: 2 bytes of state an element, and 8 for each 256 elements, instead of 8
  // bytes.
  const auto alone = [](const char* name) {
    Job job = job_with({"AdamW8bit"}, kFloat32);
    job.optimizer.rule = optim::options_of(name).rule;
    job.steps = 1;
    return run(job).planned[0];
  };
  const int64_t matrices = 9, saved = matrices * (6 * 4608 - 4608 / 256 * 8);
  EXPECT_LT(alone("AdamW8bit"), alone("LAMB") - saved);  // which owns whole tensors too, and keeps both moments
}

}  // namespace
}  // namespace trireme::engine
