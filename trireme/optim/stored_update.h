// Updates of weights, state or gradients that are stored in two bytes. The rule itself (optimizer.h) computes in
// float32: a tile of each tensor is widened, updated and rounded back, so every rule over flat spans knows every
// storage.
//
// Weights of two bytes lose most changes that are small beside them, if they are rounded to nearest. Two remedies:
//   compensation   a second tensor of two bytes keeps what rounding has lost; the rule sees the sum of both. (Kahan's
//                  summation: the sum of two bfloat16 has 16 bits.)
//   stochastic     rounded up or down at random, so that the mean of the results is exact. The moments are rounded
//                  likewise: to nearest, a second moment would never fall, because 0.1 % is less than half a step
// Random bits are a function of (key, tensor, element): they depend neither on ranks nor on tiles.
//
// Source    Kahan, Further remarks on reducing truncation errors (1965); Gupta et al., Deep Learning with Limited
//           Numerical Precision (2015); Zamirai et al., Revisiting BFloat16 Training (2020), which compares both
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/optim/by_tensor.h"
#include "trireme/optim/optimizer.h"

namespace trireme::optim {

/// A rank's part of a group. All tensors are [n].
struct StoredSpan {
  at::Tensor master;  ///< float64, float32, bfloat16 or float16
  std::vector<at::Tensor> state;  ///< likewise; one for each of state_names
  at::Tensor gradient;  ///< likewise
  at::Tensor compute = {};  ///< undefined, or where the updated weights are written, rounded to nearest
  at::Tensor compensation = {};  ///< undefined, or of the master's dtype
  at::Tensor work = {};  ///< StepTensors::work
  bool stochastic = false;  ///< rounds master and state stochastically; bfloat16 only
  uint64_t key = 0;  ///< of the random bits: another one for each step and group
  int64_t first = 0;  ///< place of element 0 in the group, for the random bits
};

/// step_group() on these tensors. Rules by tensor know only masters, state and gradients in float32 or float64.
///
/// Cost      beside the update's own, one pass over a tile of 32,768 elements, which stays in the level-2 cache. Where
///           every tensor is stored as the rule computes, nothing
/// Numerics  the rule's, in float32; then one rounding of each tensor. The bits do not depend on threads
/// Errors    ShapeError when a tensor or the segments do not fit
void update_stored(const StoredSpan& span, std::span<const DecaySegment> segments, const OptimizerOptions& options,
                   const AddParts& add_parts = {});

/// squared_norm_partials() of a gradient of any of these dtypes.
void stored_norm_partials(const at::Tensor& partials, const at::Tensor& gradient);

/// The bfloat16 beside `value` that `random`, 16 random bits, selects: the higher in magnitude with the probability
/// that makes the mean exact. Infinities and NaNs stay.
uint16_t stochastic_bfloat16(float value, uint32_t random);

}  // namespace trireme::optim
