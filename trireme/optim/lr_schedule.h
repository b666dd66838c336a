// The learning rate as a function of the step alone: every rank computes the same, and so does a resumed run. Each
// schedule is a row with its formula (lr_schedule.cpp).
#pragma once

#include <cstdint>

#include "trireme/optim/settings_lr.h"

namespace trireme::optim {

struct LrSchedule {
  double peak = 1e-3;
  double min = 0;
  int64_t warmup_steps = 0;
  int64_t max_steps = 1;  ///< 0: the run's end is not known
  LrDecay decay = LrDecay::cosine;
  LrScheduleSettings settings = {};

  /// The rate of the run's step number `step`, which counts from 1. With settings.first_step 1, step 1 of a warm-up has
  /// peak / warmup_steps and step warmup_steps has the peak; with 0, these are steps 2 and warmup_steps + 1. Step
  /// max_steps and all later steps have `min`, if the schedule ends there. A schedule that needs the run's end is
  /// constant after the warm-up if the end is not known.
  double at(int64_t step) const;
};

}  // namespace trireme::optim
