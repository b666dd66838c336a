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

/// Streaming stores go past the caches: for results that this core does not read soon, or whose lines other cores hold
/// (see copy_for_peer).
enum class Stores { plain, streaming };

/// The same fold written to each of `outputs`, of which any may be one of the sources; `accumulate` adds to what the
/// first holds.
void fold_to_all(std::span<void* const> outputs, at::ScalarType output_dtype, std::span<const void* const> sources,
                 at::ScalarType input_dtype, int64_t count, ReduceOptions options, Stores stores);

/// memcpy with stores that go past the caches.
void stream_copy(void* to, const void* from, int64_t bytes);

/// memcpy to where another core has read before and will read next, by the stores that are faster on this processor.
/// AMD: past the caches, because a plain store first takes the line away from that core, one line at a time: 28 ns each
/// on a Zen 4 (2.3 GB/s), where these reach 25 GB/s. Others: plain, because the reader finds the lines in a cache
/// (Cascade Lake: an all_gather of 4 KiB takes 1.4 to 2.1 us instead of 2.4).
void copy_for_peer(void* to, const void* from, int64_t bytes);

}  // namespace trireme::comm
