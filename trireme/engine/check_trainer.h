// What a Trainer's options may be. Those of a program are not read from settings, so nobody has checked their numbers:
// a negative max_norm would climb the loss, and a window of 0 steps would divide by 0. The bounds are those of the
// settings of the same names.
#pragma once

#include "trireme/engine/trainer.h"

namespace trireme::engine {

/// Errors    UsageError: a number outside its bounds, or options that do not work together or with the model
void check_trainer(const TrainerOptions& options, const plan::StepRequest& request, const model::Model& model);

/// Errors    UsageError: not a finite number of 0 or more
void check_learning_rate(double lr);

}  // namespace trireme::engine
