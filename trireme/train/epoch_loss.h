// The mean training loss of each pass over the data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/progress.h"

namespace trireme::train {

class EpochLoss {
 public:
  /// `epochs`: train.epochs. A run that it ends leaves out the batch that is not full, and its last step ends the pass.
  explicit EpochLoss(std::optional<int64_t> epochs = {}) : epochs_(epochs) {}

  /// Takes in a finished step. If it ends a pass, adds the measure "epoch_loss" to the event, and returns the line to
  /// say; otherwise returns "".
  std::string note(base::StepEvent& event);

 private:
  std::optional<int64_t> epochs_;
  double sum_ = 0;
  int64_t steps_ = 0;
  double before_ = -1;  ///< passes before the step; negative: no step yet
};

}  // namespace trireme::train
