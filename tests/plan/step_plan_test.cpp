#include "trireme/plan/step_plan.h"

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

StepPlan plan_of(const std::string& name, StepRequest request) {
  request.precision = {at::kBFloat16, at::kFloat};
  const model::Model model = model::build_model(model::catalogue_config(name), request.precision);
  return make_step_plan(model, request);
}

TEST(StepPlan, RowsSumToTheArenaAndItLiesWithinOnePercentOfTheBound) {
  for (bool shard : {false, true})
    for (auto recompute : {schedule::Recompute::none, schedule::Recompute::full})
      for (int ranks : {1, 2, 8}) {
        const StepPlan plan = plan_of(
            "llama-32m",
            {.shape = {2, 512}, .num_ranks = ranks, .shard = shard, .num_micro_batches = 2, .recompute = recompute});
        const MemoryReport report = memory_report(plan);
        int64_t sum = 0;
        for (const MemoryRow& row : report.rows) sum += row.bytes;
        EXPECT_EQ(sum, plan.arena.total());
        EXPECT_LE(double(report.total_bytes), 1.01 * double(report.lower_bound_bytes))
            << ranks << " ranks, shard " << shard;
        EXPECT_GE(report.total_bytes, report.lower_bound_bytes);
      }
}

TEST(StepPlan, AModelOfEightBillionParametersIsPlannedWithoutItsMemory) {
  const StepPlan plan = plan_of(
      "llama-3-8b", {.shape = {1, 8192}, .num_ranks = 64, .shard = true, .recompute = schedule::Recompute::full});
  const double gib = double(plan.arena.total()) / (1 << 30);
  // 8.03e9 x (4 + 4 + 4 + 4 + 2) / 64 = 2.1 GiB of state and the activations of 8192 tokens.
  EXPECT_GT(gib, 2.1);
  EXPECT_LT(gib, 20);
}

TEST(StepPlan, ShardedStateShrinksWithTheRanks) {
  const auto state = [](int ranks) {
    return plan_of("llama-32m", {.shape = {1, 64}, .num_ranks = ranks, .shard = true}).arena.persistent[0];
  };
  EXPECT_NEAR(double(state(4)) / double(state(1)), 0.25, 0.01);
}

}  // namespace
}  // namespace trireme::plan
