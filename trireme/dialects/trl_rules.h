// What TRL's keys mean that depend on each other (trl.cpp has the table): optimizers and schedules in trl_rules.cpp,
// the others in trl_steps.cpp.
#pragma once

#include "trireme/dialects/reading.h"

namespace trireme::dialects {

void trl_optimizer(Reading& reading, const config::Given& entry);
/// The moments' rates, where the optimizer reads them.
void trl_moments(Reading& reading);
/// The schedule with its options, once the rate is known.
void trl_schedule(Reading& reading);
void trl_warmup(Reading& reading);

/// Sequences of a step and a rollout, which TRL counts in answers.
void trl_batches(Reading& reading);
void trl_length(Reading& reading);
void trl_adapters(Reading& reading);
void trl_evaluations(Reading& reading);
void trl_saves(Reading& reading);
/// How answers that an earlier sampler wrote are weighed.
void trl_sampler(Reading& reading);

}  // namespace trireme::dialects
