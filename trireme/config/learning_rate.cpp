#include "trireme/config/learning_rate.h"

#include <algorithm>
#include <cmath>

namespace trireme::config {

double scaled_lr(const Settings& settings) {
  const OptimizerSettings& optimizer = settings.optimizer;
  const double ratio =
      static_cast<double>(settings.train.global_batch_size) / static_cast<double>(optimizer.base_batch_size);
  switch (optimizer.lr_scaling) {
    case LrScaling::none:
      return optimizer.lr;
    case LrScaling::linear:
      return optimizer.lr * ratio;
    case LrScaling::sqrt:
      return optimizer.lr * std::sqrt(ratio);
  }
  return optimizer.lr;
}

double lowest_lr(const Settings& settings) {
  constexpr double kMost = 6e-5;
  return settings.train.min_lr.value_or(std::min(kMost, scaled_lr(settings) / 10));
}

}  // namespace trireme::config
