// How early copies of offloaded values have to begin (offload.prefetch auto): as late as a step does not feel.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trireme/costs/step_costs.h"

namespace trireme::costs {

/// Predicted seconds of a training step by offload.prefetch, from 1 on. `plan` may be without lists
/// (plan/stage_plans.h); the prefetch of its request does not matter.
///
/// Cost      a prediction for each of eight
/// Errors    as predict()
std::vector<double> seconds_by_distance(const model::Model& model, const plan::StepPlan& plan,
                                        const Machines& machines);

/// The smallest distance that fits and that no larger one that fits beats by more than 1 %. 1 always fits.
/// `fits` is asked about few distances, and what does not fit has none above it that does.
int64_t choose_distance(std::span<const double> seconds, const std::function<bool(int64_t distance)>& fits);

}  // namespace trireme::costs
