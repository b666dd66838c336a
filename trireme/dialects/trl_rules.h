// What TRL's keys of optimizers and schedules mean (trl.cpp has the table).
#pragma once

#include "trireme/dialects/reading.h"

namespace trireme::dialects {

void trl_optimizer(Reading& reading, const config::Given& entry);
/// The moments' rates, where the optimizer reads them.
void trl_moments(Reading& reading);
/// The schedule with its options, once the rate is known.
void trl_schedule(Reading& reading);
void trl_warmup(Reading& reading);

}  // namespace trireme::dialects
