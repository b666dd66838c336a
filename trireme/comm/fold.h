// The left fold that defines every reduction: output = ((x0 + x1) + x2) + ..., in rank order and in the dtype of
// the output, optionally on top of what the output holds. Works in blocks that stay in the first-level cache,
// so that each source is read from memory once and the output is written once.
#pragma once

#include "trireme/comm/communicator.h"

namespace trireme::comm {

/// Folds `count` elements of each of `sources` (in this order) into `output`; `output` may be one of them.
///
/// Cost      one pass over the sources and the output; no allocation
/// Numerics  bf16 and fp16 outputs are rounded to nearest even after each addition; max propagates NaN
void fold(void* output, at::ScalarType output_dtype, std::span<const void* const> sources, at::ScalarType input_dtype,
          int64_t count, ReduceOptions options);

}  // namespace trireme::comm
