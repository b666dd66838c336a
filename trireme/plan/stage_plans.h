// Plans of all stages of a pipeline at once: `trireme plan` looks for the fullest one. What the stages share is made
// once, and the lists that all of them would check are checked once. And a plan without its lists, for those who only
// ask how a rank's state is divided, or make lists of their own (stage_lists).
#pragma once

#include <vector>

#include "trireme/plan/step_plan.h"

namespace trireme::plan {

/// Which stages get the placement that a run would have.
enum class PlacedStages {
  all,
  fullest,  ///< and every other that needs as much; the rest is placed quickly, in less than the fullest stage needs
};

/// Of the data-parallel ranks beside plan's, one that owns the most. They differ where tensors stay whole
/// (optim::is_by_tensor).
int fullest_alike(const StepPlan& plan);

/// By stage, of the ranks that share a pipeline with request.rank; with an optimizer that keeps tensors whole, of those
/// among the data-parallel ranks that own the most. Each equals make_step_plan() of its rank, but for
/// the places that PlacedStages leaves open. Either way the largest arena is the largest that a run has.
///
/// Cost      stages are made side by side, on as many threads as there are cores
/// Errors    as make_step_plan()
std::vector<StepPlan> make_stage_plans(const model::Model& model, const StepRequest& request, PlacedStages placed);

}  // namespace trireme::plan
