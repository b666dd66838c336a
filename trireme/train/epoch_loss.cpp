#include "trireme/train/epoch_loss.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "trireme/base/text.h"

namespace trireme::train {

std::string EpochLoss::note(base::StepEvent& event) {
  if (event.loss) sum_ += *event.loss, ++steps_;
  const double before = std::exchange(before_, event.epoch);
  if (!std::isfinite(event.epoch)) return "";
  if (event.epoch > before) increase_ = event.epoch - before;
  const bool within = std::floor(event.epoch) > std::floor(before);
  const double left = epochs_ ? double(*epochs_) - event.epoch : 0;
  const bool at_end =
      left > 0 && event.step == event.max_steps && left < increase_ * double(steps_of_batch_);  // for one more batch
  if (!within && !at_end) return "";
  const double mean = sum_ / double(steps_);
  const bool is_whole = std::exchange(is_whole_, true), learned = steps_ > 0;
  event.is_kept = true;
  if (is_whole && learned) event.measures.push_back({"epoch_loss", mean});
  const std::string head = fmt::format("epoch    {:.0f} ended with step {}",
                                       within ? std::floor(event.epoch) : double(*epochs_), event.step);
  if (at_end) event.epoch = double(*epochs_);  // what is left of the data makes no batch
  const std::string line =
      is_whole && !learned ? head + "; no step of it learned from a token, so it has no mean loss"
      : is_whole ? fmt::format("{}: mean training loss {:.4f} over {}", head, mean, base::plural(steps_, "step"))
                 : head + "; it began before this start, so its mean loss is left out";
  sum_ = 0, steps_ = 0;
  return line;
}

}  // namespace trireme::train
