// Steps whose gradients overflow in float16 are skipped: alike on every rank of every mesh, and without a trace.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.h"

namespace trireme::engine {
namespace {

Job half_job() { return {.model = small_llama(), .precision = kHalfMixed, .steps = 10, .overflows = {1, 4, 5, 8}}; }

void expect_equal_runs(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.scales, b.scales);
  EXPECT_EQ(a.skipped, b.skipped);
  EXPECT_TRUE(at::equal(a.parameters, b.parameters)) << relative_distance(a.parameters, b.parameters);
  for (size_t i = 0; i < a.losses.size(); ++i)
    if (!std::ranges::count(a.skipped, static_cast<int>(i) + 1)) EXPECT_EQ(a.losses[i], b.losses[i]) << i;
}

TEST(LossScaling, SkipsTheStepsThatOverflowAndGrowsAfterTheWindow) {
  const Outcome one = run(half_job());
  EXPECT_THAT(one.skipped, testing::ElementsAre(1, 4, 5, 8));
  EXPECT_THAT(one.scales, testing::ElementsAre(1024, 512, 512, 512, 256, 128, 128, 128, 64, 64));
  EXPECT_TRUE(one.parameters.isfinite().all().item<bool>());
  Job grows = half_job();
  grows.overflows = {};
  EXPECT_THAT(run(grows).scales, testing::ElementsAre(1024, 1024, 1024, 2048, 2048, 2048, 4096, 4096, 4096, 8192));
}

TEST(LossScaling, AnOverflowOnOneRankSkipsTheStepOnAllAndGivesTheBitsOfOneRank) {
  Job job = half_job();
  const Outcome one = run(job);
  for (const plan::Strategy strategy :
       {plan::Strategy::no_shard, plan::Strategy::zero1, plan::Strategy::shard_grad_op, plan::Strategy::full_shard}) {
    job.strategy = strategy;
    for (const int ranks : {2, 4}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, strategy " << static_cast<int>(strategy));
      job.mesh = {.shard = ranks};
      expect_equal_runs(run(job), one);
    }
  }
  job.mesh = {.replicate = 2, .shard = 2};
  expect_equal_runs(run(job), one);
}

TEST(LossScaling, EveryAxisSkipsAlikeAndAgreesWithOneRank) {
  Job job = half_job();
  const Outcome one = run(job);
  job.strategy = plan::Strategy::full_shard;
  for (const comm::MeshSizes& mesh :
       {comm::MeshSizes{.pp = 2, .shard = 2}, comm::MeshSizes{.shard = 2, .tp = 2},
        comm::MeshSizes{.shard = 2, .cp = 2}, comm::MeshSizes{.pp = 2, .shard = 1, .tp = 2}})
    for (const bool sequence : {false, true}) {
      if (sequence && mesh.tp == 1) continue;
      SCOPED_TRACE(testing::Message() << "pp " << mesh.pp << " cp " << mesh.cp << " tp " << mesh.tp << " sp "
                                      << sequence);
      job.mesh = mesh;
      job.sequence_parallel = sequence;
      const Outcome many = run(job);
      EXPECT_EQ(many.skipped, one.skipped);
      EXPECT_EQ(many.scales, one.scales);
      // Activations are rounded to 2^-11, and Adam's first steps have the size of the rate whatever the gradient's is.
      EXPECT_NEAR(many.losses.back(), one.losses.back(), 5e-3);
      EXPECT_LE(relative_distance(many.parameters, one.parameters), 2e-2);
    }
}

// The optimizer's step does not count either: Adam corrects its moments by the steps it took.
TEST(LossScaling, ASkippedStepLeavesNoTrace) {
  Job job = half_job();
  job.steps = 2;
  job.overflows = {1, 2};
  const at::Tensor none = run(job).parameters;
  job.steps = 1;
  EXPECT_TRUE(at::equal(run(job).parameters, none));
  job = half_job();
  job.steps = 2, job.overflows = {1}, job.loss_scale.initial = 1024;
  const Outcome second = run(job);
  job.overflows = {}, job.loss_scale.initial = 512;
  EXPECT_FALSE(at::equal(run(job).parameters, second.parameters));
  EXPECT_EQ(second.scales.back(), 512);
}

}  // namespace
}  // namespace trireme::engine
