#include "trireme/train/epoch_loss.h"

#include <fmt/format.h>

#include <cmath>

#include "trireme/base/text.h"

namespace trireme::train {

std::string EpochLoss::note(base::StepEvent& event) {
  sum_ += event.loss;
  ++steps_;
  // Of a resumed run the first step is taken for one within a pass.
  const double before = before_ >= 0 ? before_ : event.step == 1 ? 0 : event.epoch;
  const double of_step = before_ >= 0 ? event.epoch - before_ : event.epoch / double(event.step);
  before_ = event.epoch;
  if (!std::isfinite(event.epoch)) return "";
  const bool within = std::floor(event.epoch) > std::floor(before);
  const bool at_end = epochs_ && event.step == event.max_steps && double(*epochs_) - event.epoch < of_step;
  if (!within && !at_end) return "";
  const double mean = sum_ / double(steps_);
  event.measures.push_back({"epoch_loss", mean});
  event.is_kept = true;
  const std::string line =
      fmt::format("epoch    {:.0f} ended with step {}: mean training loss {:.4f} over {}",
                  within ? std::floor(event.epoch) : double(*epochs_), event.step, mean, base::plural(steps_, "step"));
  sum_ = 0, steps_ = 0;
  return line;
}

}  // namespace trireme::train
