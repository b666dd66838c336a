// Rules that need whole tensors: LARS and LAMB divide the norm of a tensor by the norm of its step, Adafactor sums the
// squares of rows and columns, and Muon makes the step of a matrix orthogonal. So a rank owns whole tensors
// (shard::FlatLayout), and sums end at their boundaries: the bits do not depend on the number of data-parallel ranks.
// Only tensor parallelism divides a tensor further. Its ranks add their parts up, inside the action Step, in calls that
// step_traffic() lists.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trireme/model/unit.h"
#include "trireme/optim/optimizer.h"

namespace trireme::optim {

/// The tensors of one group's step on this rank.
struct StepTensors {
  at::Tensor master;
  std::span<const at::Tensor> state;
  at::Tensor gradient, compute;
  at::Tensor work;  ///< [step_work_bytes()] bytes; undefined if that is 0
};

/// Adds a tensor up over the tensor-parallel ranks, in place.
using AddParts = std::function<void(const at::Tensor&)>;

/// One step of any rule. Rules by tensor need segments with `parameter`, which hold whole tensors.
///
/// Numerics  norms and Muon's first moment as in float64 and the master's dtype; Muon multiplies in `compute`'s dtype
/// if
///           there is one, as PyTorch does in bfloat16
/// Cost      LARS and LAMB read the span twice; Muon computes 5 x 3 products of a matrix's size, on each
///           tensor-parallel rank
/// Source    You et al., 2017 (LARS); You et al., 2020 and DeepSpeed's FusedLamb; Jordan, 2024 and torch.optim.Muon
void step_group(const StepTensors& tensors, std::span<const DecaySegment> segments, const OptimizerOptions& options,
                const AddParts& add_parts);

/// Bytes of StepTensors::work.
int64_t step_work_bytes(Rule rule, std::span<const DecaySegment> segments, at::ScalarType master,
                        at::ScalarType compute);

/// The calls of AddParts, in order, if tensor parallelism divides the model.
std::vector<model::TrafficRow> step_traffic(Rule rule, std::span<const DecaySegment> segments, at::ScalarType master);

}  // namespace trireme::optim
