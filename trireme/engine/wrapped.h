// Models of wrapped modules (model/wrap.h) on an engine: start from the modules' values, get trained values back, and
// what their autograd takes beside the plan. All but autograd_allowance are collective over the world.
#pragma once

#include <vector>

#include "trireme/engine/engine.h"
#include "trireme/model/wrap.h"

namespace trireme::engine {

/// Sets master weights to the values that rank 0's modules had when the model was built, and optimizer state to zero.
/// Then the modules' own copies are freed.
///
/// Cost      broadcasts every parameter, one after the other
/// Errors    UsageError when the values have been loaded (and freed) before
void load_parameters(Engine& engine);

/// Master weights of all units, whole, on every rank: in the order of the groups.
/// Cost      memory and an all-reduce of all parameters
std::vector<model::NamedTensor> gather_parameters(Engine& engine);

/// Gives the modules their trained parameters in memory of their own, so that they can be used as plain LibTorch
/// modules, also after the engine. A later step binds them to planned memory again.
void store_parameters(Engine& engine);

/// Bytes that LibTorch's allocator needs at the highest point of a training step for the graphs of this rank's wrapped
/// units: probed sizes, added up along the list. Comes on top of plan.arena. 0 for built-in models.
int64_t autograd_allowance(const plan::StepPlan& plan);

}  // namespace trireme::engine
