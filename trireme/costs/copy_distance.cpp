#include "trireme/costs/copy_distance.h"

#include <algorithm>

namespace trireme::costs {
namespace {

constexpr int64_t kMost = 8;
constexpr double kWorthIt = 0.99;  // of the seconds of a step

}  // namespace

std::vector<double> seconds_by_distance(const model::Model& model, const plan::StepPlan& plan,
                                        const Machines& machines) {
  plan::StepPlan tried = plan;
  std::vector<double> seconds;
  for (int64_t distance = 1; distance <= kMost; ++distance) {
    tried.request.offload.prefetch = distance;
    seconds.push_back(predict(model, tried, machines).step);
  }
  return seconds;
}

int64_t choose_distance(std::span<const double> seconds, const std::function<bool(int64_t distance)>& fits) {
  while (seconds.size() > 1) {
    const double best = *std::ranges::min_element(seconds);
    const auto chosen = std::ranges::find_if(seconds, [&](double s) { return best >= kWorthIt * s; });
    const int64_t distance = chosen - seconds.begin() + 1;
    if (distance == 1 || fits(distance)) return distance;
    seconds = seconds.first(static_cast<size_t>(distance - 1));
  }
  return 1;
}

}  // namespace trireme::costs
