// The keys of dropout masks (ops::DropoutMask, ops::AttentionDropout): one for each token, out of (seed, step, sequence
// of the global batch, position in the sequence, module). So a mask is the same on every mesh, after recomputation and
// after a resume.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
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

/// One dropout of a unit.
struct Dropout {
  double p = 0;  ///< 0: nothing is dropped
  uint64_t module = 0;  ///< dropout_module_key()
  bool drops(const Randomness& random) const { return p > 0 && random.active; }
};

/// That of a block: "blocks.3.attention.weights", ".attention.output" and ".mlp.output" name the masks.
Dropout block_dropout(int64_t layer, const std::string& what, double p);

/// to = mask * from / (1 - p), or `from` if nothing is dropped; `to` may be `from`. Rows are those of all T local
/// tokens, or this rank's under sequence parallelism. keys [T] int32 is scratch.
void drop(const Dropout& dropout, const at::Tensor& to, const at::Tensor& from, const UnitTensors& t,
          const Parallel& parallel, const at::Tensor& keys);

}  // namespace trireme::model
