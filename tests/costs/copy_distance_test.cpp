#include "trireme/costs/copy_distance.h"

#include <gtest/gtest.h>

#include <vector>

#include "support.h"
#include "trireme/plan/step_layouts.h"

namespace trireme::costs {
namespace {

constexpr auto kAlwaysFits = [](int64_t) { return true; };

// Steps with the distances 1, 2, 3, ...
std::vector<StepByDistance> steps_of(const std::vector<double>& seconds) {
  std::vector<StepByDistance> steps;
  for (const double s : seconds) steps.push_back({std::ssize(steps) + 1, s});
  return steps;
}

TEST(CopyDistance, IsTheLeastThatNoLargerOneBeatsByAPercent) {
  EXPECT_EQ(choose_distance(steps_of({10.0, 10.0, 10.0}), kAlwaysFits), 1);
  EXPECT_EQ(choose_distance(steps_of({10.0, 9.95, 9.91}), kAlwaysFits), 1);
  EXPECT_EQ(choose_distance(steps_of({10.0, 9.95, 9.0, 8.95}), kAlwaysFits), 3);
  EXPECT_EQ(choose_distance(steps_of({10.0, 11.0, 8.0}), kAlwaysFits), 3);
  EXPECT_EQ(choose_distance(steps_of({8.0, 11.0, 12.0}), kAlwaysFits), 1);
}

// What does not fit is left out, and the rest is chosen from anew.
TEST(CopyDistance, FitsInMemory) {
  const auto up_to = [](int64_t most) { return [most](int64_t distance) { return distance <= most; }; };
  const std::vector<StepByDistance> steps = steps_of({10.0, 9.5, 9.45, 9.43, 8.0});
  EXPECT_EQ(choose_distance(steps, up_to(5)), 5);
  EXPECT_EQ(choose_distance(steps, up_to(4)), 2);
  EXPECT_EQ(choose_distance(steps, up_to(3)), 2);
  EXPECT_EQ(choose_distance(steps, up_to(0)), 1);
}

engine::Job small_job(const schedule::OffloadSettings& offload) {
  engine::Job job{.model = engine::small_llama(), .precision = engine::kMixed};
  job.model.num_hidden_layers = 8;
  job.offload = offload;
  return job;
}

// Of a machine whose disk moves `rate` GB/s.
std::vector<StepByDistance> steps_with(double rate, const engine::Job& job) {
  const plan::StepRequest r = engine::request_of(job, 0);
  const model::Model model = model::build_model(job.model, r.precision, r.parallel());
  Hardware h;
  h.name = "with a disk";
  h.memory_rate = 10;
  h.peak = {.fp32 = 0.1, .bf16 = 0.1};
  h.shares_cores = true;
  h.disk_rate = rate;
  return steps_by_distance(model, plan::plan_without_lists(model, r), {.hardware = h, .ranks = 1});
}

// A step waits less for a disk if what the optimizer needs comes while backward passes compute; a fast disk, and host
// memory, which the cores copy themselves, gain nothing.
TEST(CopyDistance, FollowsFromTheDiskAndFromWhatIsComputed) {
  using schedule::Tier;
  const engine::Job job = small_job({.optimizer = Tier::disk, .master = Tier::disk});
  const std::vector<StepByDistance> slow = steps_with(0.05, job), fast = steps_with(1e6, job);
  EXPECT_GT(choose_distance(slow, kAlwaysFits), 1);
  EXPECT_LT(slow.back().seconds, slow.front().seconds);
  EXPECT_EQ(choose_distance(fast, kAlwaysFits), 1);
  const engine::Job in_host_memory = small_job({.optimizer = Tier::cpu, .master = Tier::cpu});
  EXPECT_EQ(choose_distance(steps_with(0, in_host_memory), kAlwaysFits), 1);
}

// A block's step has 13 tiles here. What they move comes while other blocks compute only if it begins before them all.
TEST(CopyDistance, ReachesPastTheTilesOfABlock) {
  engine::Job job = small_job({.optimizer = schedule::Tier::disk, .master = schedule::Tier::disk});
  job.strategy = plan::Strategy::full_shard;
  job.model.hidden_size = 1024;
  job.model.intermediate_size = 2816;
  job.model.num_attention_heads = job.model.num_key_value_heads = 8;
  job.model.head_dim = 128;
  job.model.max_position_embeddings = 256;
  job.shape = {4, 256};
  job.global_micro_batches = 1;
  job.steps_in_backward = true;
  job.max_norm.reset();
  const std::vector<StepByDistance> steps = steps_with(1, job);
  EXPECT_GT(choose_distance(steps, kAlwaysFits), 13);
}

}  // namespace
}  // namespace trireme::costs
