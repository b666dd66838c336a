// Learning from pairs of replies: planned memory, and one result on every mesh, with adapters and without. Numbers are
// TRL's in tests/adapt/preferences_judge.py.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support.h"

namespace trireme::engine {
namespace {

using model::PairLoss;
using plan::Strategy;

Job pair_job(const model::Precision& precision, bool adapted, PairLoss loss = PairLoss::sigmoid) {
  Job job{.model = small_llama(), .precision = precision, .steps = 2};
  job.objective.pairs = {{.loss = loss}, {.loss = PairLoss::sft, .weight = 0.5}};
  job.context = model::Context::ulysses;
  job.documents.attention = true;
  job.poison = true;
  if (!adapted) return job;
  for (int block = 0; block < 3; ++block)
    for (const char* name : {"self_attn.q_proj", "mlp.down_proj"})
      job.adapters.modules["model.layers." + std::to_string(block) + "." + name] = {.rank = 4};
  return job;
}

TEST(Preferences, DataRanksAndRecomputationChangeNoBitAndTheArenaIsThePlannedOne) {
  for (const bool adapted : {false, true})
    for (const model::Precision& precision : {kFloat32, kMixed}) {
      SCOPED_TRACE(testing::Message() << "adapters " << adapted << ", " << c10::toString(precision.compute));
      Job job = pair_job(precision, adapted);
      const Outcome one = run(job);
      EXPECT_EQ(one.planned, one.allocated);
      const auto expect_equal = [&](const Outcome& many) {
        EXPECT_EQ(many.losses, one.losses);
        EXPECT_EQ(many.measures, one.measures);
        EXPECT_EQ(many.norms, one.norms);
        EXPECT_TRUE(at::equal(many.parameters, one.parameters));
        EXPECT_EQ(many.planned, many.allocated);
      };
      job.recompute.mode = schedule::Recompute::full;
      expect_equal(run(job));
      job.recompute = {};
      for (const Strategy strategy : {Strategy::no_shard, Strategy::zero1, Strategy::full_shard}) {
        job.mesh = {.shard = 2};
        job.strategy = strategy;
        expect_equal(run(job));
      }
      job.mesh = {.replicate = 2, .shard = 2};
      expect_equal(run(job));
    }
}

TEST(Preferences, EveryMeshGivesOneRanksResultInPlannedMemory) {
  for (const bool adapted : {false, true}) {
    const Job job = pair_job(kFloat64, adapted, PairLoss::ipo);
    const Outcome one = run(job);
    std::vector<Job> divisions;
    const auto add = [&](const comm::MeshSizes& mesh) -> Job& {
      divisions.push_back(job);
      divisions.back().mesh = mesh;
      return divisions.back();
    };
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "zb_v"})
      add({.pp = 2, .shard = 1}).pipeline.schedule = schedule;
    add({.pp = 2, .shard = 2}).strategy = Strategy::full_shard;
    add({.shard = 1, .cp = 2}).strategy = Strategy::full_shard;
    for (const bool sequence_parallel : {false, true}) add({.shard = 1, .tp = 2}).sequence_parallel = sequence_parallel;
    for (const Job& division : divisions) {
      SCOPED_TRACE(testing::Message() << "adapters " << adapted << ", pp " << division.mesh.pp << ' '
                                      << division.pipeline.schedule << ", cp " << division.mesh.cp << ", tp "
                                      << division.mesh.tp << ", sp " << division.sequence_parallel);
      const Outcome many = run(division);
      EXPECT_LE(relative_distance(many.gradients, one.gradients), 1e-10);
      EXPECT_LE(relative_distance(many.parameters, one.parameters), 1e-10);
      EXPECT_NEAR(many.evaluation, one.evaluation, 1e-10);
      for (size_t i = 0; i < one.measures.back().size(); ++i)
        EXPECT_NEAR(many.measures.back()[i], one.measures.back()[i], 1e-10);
      EXPECT_EQ(many.planned, many.allocated);
    }
  }
}

}  // namespace
}  // namespace trireme::engine
