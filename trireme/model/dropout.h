// The keys of dropout masks (ops::DropoutMask): one for each token, out of (seed, step, sequence of the global batch,
// position in the sequence, module). So a mask is the same on every mesh, after recomputation and after a resume.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "trireme/model/unit.h"

namespace trireme::model {

/// splitmix64(splitmix64(seed) ^ step); step counts from 1.
uint64_t dropout_step_key(uint64_t seed, int64_t step);
/// FNV-1a of a module's name.
uint64_t dropout_module_key(std::string_view module);

/// keys [T] int32 of this rank's tokens in one micro-batch: the lower half of
/// splitmix64(splitmix64(step_key ^ (sequence << 32 | position)) ^ module).
void dropout_keys(const at::Tensor& keys, const Randomness& random, uint64_t module, const BatchShape& shape,
                  const Parallel& parallel);

}  // namespace trireme::model
