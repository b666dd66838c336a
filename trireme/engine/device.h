// What the engine does differently where its arena lies on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/engine/engine.h"

namespace trireme::engine {

/// The GPU of the rank with this index among those of its machine, made the calling thread's current one. Opens the
/// CUDA kernels.
/// Errors    UsageError where the machine has no GPU for it
at::Device take_gpu(int local_rank);

/// `bytes` zeroed bytes of a GPU. Errors: Error with the numbers when it has not got them
at::Tensor allocate_on_gpu(int64_t bytes, at::Device device);

/// What this rank saves of each group, without gradients.
std::vector<GroupState> saved_part(std::vector<GroupState> whole);

}  // namespace trireme::engine
