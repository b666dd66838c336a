#include "trireme/costs/copy_distance.h"

#include <algorithm>

namespace trireme::costs {
namespace {

constexpr int64_t kDistances[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};  // as the setting's text says
constexpr double kWorthIt = 0.99;  // of the seconds of a step

}  // namespace

std::vector<StepByDistance> steps_by_distance(const model::Model& model, const plan::StepPlan& plan,
                                              const Machines& machines) {
  plan::StepPlan tried = plan;
  std::vector<StepByDistance> steps;
  for (const int64_t distance : kDistances) {
    tried.request.offload.prefetch = distance;
    steps.push_back({distance, predict(model, tried, machines).step});
  }
  return steps;
}

int64_t choose_distance(std::span<const StepByDistance> steps, const std::function<bool(int64_t distance)>& fits) {
  while (true) {
    const double best = std::ranges::min(steps, {}, &StepByDistance::seconds).seconds;
    const auto chosen = std::ranges::find_if(steps, [&](const auto& s) { return best >= kWorthIt * s.seconds; });
    if (chosen == steps.begin() || fits(chosen->distance)) return chosen->distance;
    steps = steps.first(static_cast<size_t>(chosen - steps.begin()));
  }
}

}  // namespace trireme::costs
