// What the passes of schedule/ are told about a step: its units, its groups, and when a pipeline runs what. Layouts are
// there already; lists come next.
#pragma once

#include <vector>

#include "trireme/plan/step_plan.h"
#include "trireme/schedule/pipeline.h"
#include "trireme/schedule/step_declaration.h"

namespace trireme::plan {

/// The same on all ranks of a pipeline, as timing_of().
std::vector<schedule::UnitDeclaration> declare_units(const model::Model& model, const StepPlan& plan,
                                                     schedule::List list);
schedule::PipelineTiming timing_of(const StepPlan& plan, schedule::List list);

/// Of plan.request's rank. `units` are those of declare_units().
schedule::StepDeclaration declare_step(const model::Model& model, const StepPlan& plan, schedule::List list,
                                       std::vector<schedule::UnitDeclaration> units);

}  // namespace trireme::plan
