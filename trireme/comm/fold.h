// The left fold that defines every reduction: output = ((x0 + x1) + x2) + ..., in rank order and in the dtype of
// the output, optionally added to the output's old contents. It works in blocks that stay in the first-level cache, so
// each source is read from memory once and the output is written once.
#pragma once

#include "trireme/comm/communicator.h"

namespace trireme::comm {

/// True when sums and maxima of `input` into `output` are defined: equal dtypes, or bf16/fp16 into fp32.
bool can_fold(at::ScalarType input, at::ScalarType output);

/// Folds `count` elements of each of `sources` (in this order) into `output`; `output` may be one of them.
/// Cost      one pass over the sources and the output; no allocation
/// Numerics  bf16 and fp16 outputs are rounded to nearest even after each addition; max propagates NaN
void fold(void* output, at::ScalarType output_dtype, std::span<const void* const> sources, at::ScalarType input_dtype,
          int64_t count, ReduceOptions options);

/// Streaming stores bypass the caches. They suit results that this core does not read soon, and cache lines that other
/// cores hold (see copy_for_peer).
enum class Stores { plain, streaming };

/// The same fold, written to each of `outputs`, any of which may be one of the sources. `accumulate` adds to the
/// contents of the first output.
void fold_to_all(std::span<void* const> outputs, at::ScalarType output_dtype, std::span<const void* const> sources,
                 at::ScalarType input_dtype, int64_t count, ReduceOptions options, Stores stores);

/// memcpy with stores that bypass the caches.
void stream_copy(void* to, const void* from, int64_t bytes);

/// memcpy to memory that another core has read and will read next, with the stores that are faster on this processor.
/// On AMD, stores that bypass the caches reach 25 GB/s. Plain stores first take each cache line away from the other
/// core, which costs 28 ns a line on a Zen 4 (2.3 GB/s). On others, plain stores are faster: the reader finds the lines
/// in a cache (Cascade Lake: an all_gather of 4 KiB takes 1.4 to 2.1 us instead of 2.4).
void copy_for_peer(void* to, const void* from, int64_t bytes);

}  // namespace trireme::comm
