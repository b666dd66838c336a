// Each rank plans its own list. Values in memory that several ranks share must lie at the same places in all of their
// plans: else a rank would overwrite what another one still reads, and training would go on with wrong numbers.
#pragma once

#include "trireme/comm/communicator.h"
#include "trireme/plan/step_plan.h"

namespace trireme::engine {

/// Compares the places of the plan's values in `memory` with those of the other ranks of `ranks`, which share it.
///
/// Cost      an all_gather of one number
/// Ordering  every rank of `ranks` must call
/// Errors    InternalError on all of them if one has other places
void compare_places(const plan::StepPlan& plan, schedule::Memory memory, comm::Communicator& ranks);

}  // namespace trireme::engine
