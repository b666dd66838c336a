#include "trireme/train/epoch_loss.h"

#include <fmt/format.h>

#include <cmath>

#include "trireme/base/text.h"

namespace trireme::train {

std::string EpochLoss::note(base::StepEvent& event) {
  if (steps_ == 0) first_step_ = event.step;
  sum_ += event.loss;
  ++steps_;
  const double before = before_ < 0 ? event.epoch : before_;
  before_ = event.epoch;
  if (!std::isfinite(event.epoch) || std::floor(event.epoch) <= std::floor(before)) return "";
  const double mean = sum_ / double(steps_);
  event.measures.push_back({"epoch_loss", mean});
  event.is_kept = true;
  const std::string line = fmt::format("epoch    {:.0f} ended with step {}: mean training loss {:.4f} over {}",
                                       std::floor(event.epoch), event.step, mean, base::plural(steps_, "step"));
  sum_ = 0, steps_ = 0;
  return line;
}

}  // namespace trireme::train
