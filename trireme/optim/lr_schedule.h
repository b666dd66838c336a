// The learning rate as a function of the step: a straight rise to the peak, then a decay to the minimum.
#pragma once

#include <cstdint>

#include "trireme/optim/settings.h"

namespace trireme::optim {

/// Steps count from 1. Step 1 has peak / warmup_steps, step warmup_steps has the peak. Step max_steps and all later
/// steps have `min` (constant: the peak). Without a warm-up, step 1 is already one step into the decay.
struct LrSchedule {
  double peak = 1e-3;
  double min = 0;
  int64_t warmup_steps = 0;
  int64_t max_steps = 1;
  LrDecay decay = LrDecay::cosine;

  double at(int64_t step) const;
};

}  // namespace trireme::optim
