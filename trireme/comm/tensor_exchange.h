// Runs the phases of a collective (exchange.h) with ATen's operations, on tensors of any device. Communicators of GPU
// tensors use it; copies and folds go to the current stream. The bits are those of fold.h.
#pragma once

#include "trireme/comm/exchange.h"

namespace trireme::comm {

/// Elements [begin, begin + count) of a contiguous tensor, flat.
at::Tensor slice_of(const at::Tensor& tensor, int64_t begin, int64_t count);

/// The left fold of `terms` (flat, in rank order) into `output`, which may be one of them.
/// Cost      one pass per term (one for the first two together if dtypes are equal); allocates only if `output` is a
///           term after the second (after the first when accumulating)
void fold_tensors(const at::Tensor& output, std::span<const at::Tensor> terms, ReduceOptions options);

/// Copies or folds `slices`, one for each giving rank, to their place in `phase`. A slice of no elements may be
/// undefined.
void take_slices(const Exchange& phase, std::span<const at::Tensor> slices);

/// Runs a whole collective if one thread can access the tensors of all ranks. `calls`, one for each rank, must match.
void exchange_all(std::span<const Collective* const> calls);

}  // namespace trireme::comm
