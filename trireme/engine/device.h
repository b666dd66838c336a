// What the engine does differently on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/engine/engine.h"

namespace trireme::engine {

/// Makes GPU `local_rank` of this machine the calling thread's current one. Opens the CUDA kernels.
/// Errors    UsageError if the machine has no such GPU
at::Device take_gpu(int local_rank);

/// Refuses what ranks on GPUs do not compute yet. Errors: UsageError, in one sentence
void check_gpu(const model::Model& model, const plan::StepRequest& request, bool poison);

/// Allocates `bytes` zeroed bytes on a GPU. Errors: Error with the numbers if the GPU does not have them
at::Tensor allocate_on_gpu(int64_t bytes, at::Device device);

/// Narrows each group's state to the elements that this rank saves, without gradients. What lies in `live`, which the
/// next step changes, is copied.
std::vector<GroupState> saved_part(std::vector<GroupState> whole, const MappedMemory& live);

}  // namespace trireme::engine
