// The mean training loss of each pass over the data.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/progress.h"

namespace trireme::train {

class EpochLoss {
 public:
  /// `epoch`: passes before this start. A pass that it lies in is not seen whole, so its mean is left out. `epochs`:
  /// train.epochs. A run that it ends leaves out the batch that is not full, and its last step ends the pass.
  /// `steps_of_batch`: steps that learn from a batch of the data together; those of a rollout.
  explicit EpochLoss(double epoch = 0, std::optional<int64_t> epochs = {}, int64_t steps_of_batch = 1)
      : epochs_(epochs), steps_of_batch_(steps_of_batch), before_(epoch), is_whole_(epoch == std::floor(epoch)) {}

  /// Takes in a finished step. If it ends a pass, adds the measure "epoch_loss" to the event, and returns the line to
  /// say; otherwise returns "".
  std::string note(base::StepEvent& event);

 private:
  std::optional<int64_t> epochs_;
  int64_t steps_of_batch_;
  double sum_ = 0;
  int64_t steps_ = 0;
  double before_ = 0;  ///< passes before the step
  double increase_ = 0;  ///< of the last step that took data
  bool is_whole_ = true;  ///< every step of this pass was seen
};

}  // namespace trireme::train
