#include "trireme/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme::optim {

double LrSchedule::at(int64_t step) const {
  if (step <= warmup_steps) return peak * static_cast<double>(std::max<int64_t>(step, 0)) / warmup_steps;
  if (decay == LrDecay::constant) return peak;
  if (step >= max_steps) return min;
  const double progress = static_cast<double>(step - warmup_steps) / static_cast<double>(max_steps - warmup_steps);
  const double left = decay == LrDecay::linear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return min + (peak - min) * left;
}

}  // namespace trireme::optim
