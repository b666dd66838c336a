// The passes of a unit by the kind of action that runs them: what they need, what they send, and how they are called.
// The engine runs them, and costs/recorded_work.h records them.
#pragma once

#include <vector>

#include "trireme/model/unit.h"
#include "trireme/schedule/action_kinds.h"

namespace trireme::plan {

/// Scratch of the pass.
const model::Slots& work_of(const model::UnitValues& values, schedule::ActionKind kind);

/// The pass's calls on the unit's communicators.
const std::vector<model::TrafficRow>& rows_of(const model::UnitTraffic& traffic, schedule::ActionKind kind);

/// `recomputed`: the slots that a recomputation computes.
void run_pass(const model::Unit& unit, schedule::ActionKind kind, model::UnitTensors& tensors,
              const std::vector<int>& recomputed);

}  // namespace trireme::plan
