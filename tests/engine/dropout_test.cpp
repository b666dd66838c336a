// Dropout of the model: its masks are functions of counters, so they are the same on every mesh, after recomputation
// and after a resume. tests/adapt/model_dropout_judge.py compares them with transformers.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support.h"

namespace trireme::engine {
namespace {

using plan::Strategy;

// A plain block, learned positions, norms of branches, a parallel residual, a multiplier of branches, and norms of sums
// in a bidirectional block. matrix_test.cpp has classifiers on other meshes.
const char* const kFamilies[] = {"llama", "gpt2", "gemma3", "gpt_neox", "granite", "labels bert"};
constexpr model::DropoutRates kRates{.attention = 0.2, .residual = 0.15, .embedding = 0.1, .neftune = 5};

Job dropping_job(const std::string& family, const model::Precision& precision,
                 const model::DropoutRates& rates = kRates) {
  Job job{.model = small_model(family), .precision = precision, .steps = 2};
  if (family == "gpt2") job.model.num_attention_heads = job.model.num_key_value_heads = 4, job.model.head_dim = 12;
  job.model.dropout = rates;
  job.ragged = job.poison = true;
  job.documents.attention = job.model.is_classifier();
  return job;
}

class Dropping : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Dropping, testing::ValuesIn(kFamilies), [](const auto& family) {
  const std::string name = family.param;
  return name.substr(name.rfind(' ') + 1);
});

void expect_bits_of_one_rank(const Outcome& many, const Outcome& one) {
  EXPECT_EQ(many.losses, one.losses);
  EXPECT_EQ(many.norms, one.norms);
  EXPECT_EQ(many.evaluation, one.evaluation);
  EXPECT_TRUE(at::equal(many.parameters, one.parameters));
  EXPECT_TRUE(at::equal(many.gradients, one.gradients));
  EXPECT_EQ(many.planned, many.allocated);
}

TEST_P(Dropping, DataRanksAndRecomputationGiveTheBitsOfOneRank) {
  for (const model::Precision& precision : {kFloat32, kMixed}) {
    Job job = dropping_job(GetParam(), precision);
    const Outcome one = run(job);
    EXPECT_EQ(one.planned, one.allocated);
    for (const auto mode : {schedule::Recompute::full, schedule::Recompute::selective}) {
      Job again = job;
      again.recompute.mode = mode;
      expect_bits_of_one_rank(run(again), one);
    }
    for (const Strategy strategy : {Strategy::no_shard, Strategy::full_shard}) {
      job.strategy = strategy;
      job.mesh = {.shard = 2};
      expect_bits_of_one_rank(run(job), one);
    }
    job.mesh = {.replicate = 2, .shard = 2};
    job.recompute.mode = schedule::Recompute::full;
    expect_bits_of_one_rank(run(job), one);
  }
}

TEST_P(Dropping, EveryMeshGivesOneRanksResult) {
  if (small_model(GetParam()).is_classifier()) GTEST_SKIP() << "in the matrix";
  for (const bool documents : {false, true}) {
    Job job = dropping_job(GetParam(), kFloat64);
    job.documents = {documents, documents};
    const Outcome one = run(job);
    std::vector<Job> divisions;
    const auto add = [&](const comm::MeshSizes& mesh) -> Job& {
      divisions.push_back(job);
      divisions.back().mesh = mesh;
      return divisions.back();
    };
    for (const char* schedule : {"1f1b", "zb_h1", "zb_v"}) add({.pp = 2, .shard = 1}).pipeline.schedule = schedule;
    if (!documents && job.model.sliding_window == 0) add({.shard = 1, .cp = 2});
    add({.shard = 1, .cp = 2}).context = model::Context::ulysses;
    for (const bool sequence_parallel : {false, true}) {
      add({.shard = 1, .tp = 2}).sequence_parallel = sequence_parallel;
      Job& all = add({.pp = 2, .shard = 1, .cp = 2, .tp = 2});
      all.sequence_parallel = sequence_parallel;
      all.context = model::Context::ulysses;
      all.pipeline.schedule = "zb_h1";
      all.recompute.mode = schedule::Recompute::full;
    }
    Job& local = add({.shard = 2});
    local.ordered = false;
    local.local_accumulation = true;
    for (const Job& division : divisions) {
      SCOPED_TRACE(testing::Message() << "pp " << division.mesh.pp << ' ' << division.pipeline.schedule << ", tp "
                                      << division.mesh.tp << ", sp " << division.sequence_parallel << ", cp "
                                      << division.mesh.cp << ", documents " << documents);
      const Outcome many = run(division);
      EXPECT_LE(relative_distance(many.gradients, one.gradients), 1e-10);
      EXPECT_LE(relative_distance(many.parameters, one.parameters), 1e-10);
      EXPECT_NEAR(many.norms[0] / one.norms[0], 1, 1e-10);
      EXPECT_NEAR(many.evaluation, one.evaluation, 1e-10);
      EXPECT_EQ(many.planned, many.allocated);
    }
  }
}

TEST_P(Dropping, EachRateChangesEveryStepAndNothingInEvaluation) {
  Job plain = dropping_job(GetParam(), kFloat64, {});
  plain.optimizer.lr = 0;
  const Outcome before = run(plain);
  std::vector<double> seen = before.losses;
  for (const auto rate :
       {&model::DropoutRates::attention, &model::DropoutRates::residual, &model::DropoutRates::embedding}) {
    Job job = plain;
    job.model.dropout.*rate = 0.2;
    const Outcome after = run(job);
    EXPECT_EQ(after.evaluation, before.evaluation);
    for (const double loss : after.losses) {
      EXPECT_EQ(std::ranges::count(seen, loss), 0);
      seen.push_back(loss);
    }
  }
}

}  // namespace
}  // namespace trireme::engine
