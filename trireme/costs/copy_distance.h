// How early copies of offloaded values have to begin (offload.prefetch auto): as late as a step does not feel.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trireme/costs/step_costs.h"

namespace trireme::costs {

/// A value of offload.prefetch, and what a training step is predicted to take with it.
struct StepByDistance {
  int64_t distance;
  double seconds;
};

/// Of the distances among which auto chooses, from 1 on. Each tile of a group's optimizer step counts as one, so the
/// last ones reach from a block's first tile to before the block. `plan` may be without lists (plan/stage_plans.h); the
/// prefetch of its request does not matter.
///
/// Cost      a prediction for each of ten
/// Errors    as predict()
std::vector<StepByDistance> steps_by_distance(const model::Model& model, const plan::StepPlan& plan,
                                              const Machines& machines);

/// The smallest distance that fits and that no larger one that fits beats by more than 1 %. The first always fits.
/// `fits` is asked about few distances, and what does not fit has none above it that does.
int64_t choose_distance(std::span<const StepByDistance> steps, const std::function<bool(int64_t distance)>& fits);

}  // namespace trireme::costs
