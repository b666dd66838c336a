#include "trireme/costs/copy_distance.h"

#include <gtest/gtest.h>

#include <vector>

#include "support.h"
#include "trireme/plan/step_layouts.h"

namespace trireme::costs {
namespace {

constexpr auto kAlwaysFits = [](int64_t) { return true; };

TEST(CopyDistance, IsTheLeastThatNoLargerOneBeatsByAPercent) {
  EXPECT_EQ(choose_distance(std::vector{10.0, 10.0, 10.0}, kAlwaysFits), 1);
  EXPECT_EQ(choose_distance(std::vector{10.0, 9.95, 9.91}, kAlwaysFits), 1);
  EXPECT_EQ(choose_distance(std::vector{10.0, 9.95, 9.0, 8.95}, kAlwaysFits), 3);
  EXPECT_EQ(choose_distance(std::vector{10.0, 11.0, 8.0}, kAlwaysFits), 3);
  EXPECT_EQ(choose_distance(std::vector{8.0, 11.0, 12.0}, kAlwaysFits), 1);
}

// What does not fit is left out, and the rest is chosen from anew.
TEST(CopyDistance, FitsInMemory) {
  const auto up_to = [](int64_t most) { return [most](int64_t distance) { return distance <= most; }; };
  const std::vector<double> seconds = {10.0, 9.5, 9.45, 9.43, 8.0};
  EXPECT_EQ(choose_distance(seconds, up_to(5)), 5);
  EXPECT_EQ(choose_distance(seconds, up_to(4)), 2);
  EXPECT_EQ(choose_distance(seconds, up_to(3)), 2);
  EXPECT_EQ(choose_distance(seconds, up_to(0)), 1);
}

// Steps of a machine whose disk moves `rate` GB/s.
std::vector<double> seconds_with(double rate, const schedule::OffloadSettings& offload) {
  engine::Job job{.model = engine::small_llama(), .precision = engine::kMixed};
  job.model.num_hidden_layers = 8;
  job.offload = offload;
  const plan::StepRequest r = engine::request_of(job, 0);
  const model::Model model = model::build_model(job.model, r.precision, r.parallel());
  Hardware h;
  h.name = "with a disk";
  h.memory_rate = 10;
  h.peak = {.fp32 = 0.1, .bf16 = 0.1};
  h.shares_cores = true;
  h.disk_rate = rate;
  return seconds_by_distance(model, plan::plan_without_lists(model, r), {.hardware = h, .ranks = 1});
}

// A step waits less for a disk if what the optimizer needs comes while backward passes compute; a fast disk, and host
// memory, which the cores copy themselves, gain nothing.
TEST(CopyDistance, FollowsFromTheDiskAndFromWhatIsComputed) {
  using schedule::Tier;
  const schedule::OffloadSettings state{.optimizer = Tier::disk, .master = Tier::disk};
  const std::vector<double> slow = seconds_with(0.05, state), fast = seconds_with(1e6, state);
  ASSERT_EQ(slow.size(), 8u);
  EXPECT_GT(choose_distance(slow, kAlwaysFits), 1);
  EXPECT_LT(slow.back(), slow.front());
  EXPECT_EQ(choose_distance(fast, kAlwaysFits), 1);
  EXPECT_EQ(choose_distance(seconds_with(0, {.optimizer = Tier::cpu, .master = Tier::cpu}), kAlwaysFits), 1);
}

}  // namespace
}  // namespace trireme::costs
