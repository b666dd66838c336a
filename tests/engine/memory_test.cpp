// The plan is what is allocated, and nothing outlives its planned life.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support.h"
#include "trireme/comm/factory.h"

namespace trireme::engine {
namespace {

TEST(Memory, NaNAtTheEndOfEveryLifeAndGuardsBetweenValuesChangeNoResult) {
  for (bool shard : {false, true})
    for (schedule::Recompute recompute : {schedule::Recompute::none, schedule::Recompute::full}) {
      Job job{.model = small_llama(),
              .precision = {at::kBFloat16, at::kFloat},
              .ranks = 2,
              .shard = shard,
              .steps = 2,
              .recompute = recompute};
      const Outcome plain = run(job);
      job.poison = true;
      const Outcome poisoned = run(job);
      EXPECT_EQ(plain.losses, poisoned.losses);
      EXPECT_TRUE(at::equal(plain.parameters, poisoned.parameters));
    }
}

TEST(Memory, TheEngineAllocatesThePlannedBytesExactly) {
  const model::Precision precision{at::kFloat, at::kFloat};
  const model::Model model = model::build_model(small_llama(), precision);
  const plan::StepPlan plan =
      plan::make_step_plan(model, {.precision = precision, .shape = {2, 16}, .num_micro_batches = 2});
  const plan::MemoryReport report = plan::memory_report(plan);
  int64_t sum = 0;
  for (const plan::MemoryRow& row : report.rows) sum += row.bytes;
  EXPECT_EQ(sum, report.total_bytes);
  const auto local = comm::make_communicator({});
  const Engine engine(model, plan, {local, local, local});
  EXPECT_EQ(engine.allocated_bytes(), report.total_bytes);
  EXPECT_LE(double(report.total_bytes), 1.01 * double(report.lower_bound_bytes));
}

}  // namespace
}  // namespace trireme::engine
