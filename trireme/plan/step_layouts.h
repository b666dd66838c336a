// The first part of a plan: how parameters lie in memory, and which units a pipeline stage has.
#pragma once

#include "trireme/plan/step_plan.h"

namespace trireme::plan {

/// All of a plan that comes before its lists. Ranks of one pipeline have the same but for their coordinate.
/// Errors    UsageError for combinations that cannot work
StepPlan plan_without_lists(const model::Model& model, const StepRequest& request);

}  // namespace trireme::plan
