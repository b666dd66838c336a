// The phases of a collective (exchange.h) by ATen's operations, wherever the tensors lie: for communicators of tensors
// on a GPU, whose copies and folds are issued to a stream. Same bits as fold.h.
#pragma once

#include "trireme/comm/exchange.h"

namespace trireme::comm {

/// Elements [begin, begin + count) of a contiguous tensor, flat.
at::Tensor slice_of(const at::Tensor& tensor, int64_t begin, int64_t count);

/// The left fold of `terms` (flat, in rank order) into `output`, which may be one of them.
///
/// Cost      one pass per term, the first two in one where dtypes are equal; allocates only where `output` is a term
///           behind the second (behind the first when accumulating)
void fold_tensors(const at::Tensor& output, std::span<const at::Tensor> terms, ReduceOptions options);

/// Copies or folds `slices`, by giving rank, to where `phase` takes them; those of which nothing is taken may be
/// undefined.
void take_slices(const Exchange& phase, std::span<const at::Tensor> slices);

/// A collective as a whole, where one thread reaches the tensors of all ranks: `calls` by rank, which must match. Runs
/// in the order of the ranks and phases on one stream.
void exchange_all(std::span<const Collective* const> calls);

}  // namespace trireme::comm
