// Functions for models of wrapped modules (model/wrap.h) on an engine: start from the modules' values, get trained
// values back, compute autograd's memory. All functions except autograd_allowance are collective over the world.
#pragma once

#include <vector>

#include "trireme/engine/engine.h"
#include "trireme/model/wrap.h"

namespace trireme::engine {

/// Sets master weights to the values that rank 0's modules had when the model was built, and optimizer state to zero.
/// A divided parameter takes each part from the first rank that has it. Then frees the modules' own copies.
///
/// Cost      broadcasts every parameter, one after the other
/// Errors    UsageError if the values were loaded before, and so are freed
void load_parameters(Engine& engine);

/// Returns the whole master weights of all units, in the order of the groups, on every rank.
/// Cost      memory for all parameters, and an all-reduce of them
std::vector<model::NamedTensor> gather_parameters(Engine& engine);

/// Gives the modules memory of their own with the trained parameters. They are then plain LibTorch modules, also after
/// the engine is gone. A later step binds them to planned memory again.
void store_parameters(Engine& engine);

/// Peak bytes that autograd takes in LibTorch's allocator during a training step, beside plan.arena. They are computed
/// from the probed sizes of this rank's wrapped units along the list. 0 for built-in models.
int64_t autograd_allowance(const plan::StepPlan& plan);

}  // namespace trireme::engine
