// Attention beyond the functions in ops.h: the choice of kernel, and decoding from a cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "trireme/ops/attention/kernels.h"
#include "trireme/ops/ops.h"

namespace trireme::ops {

/// The kernels this processor can run, best first.
std::span<const AttentionKernel* const> attention_kernels();

/// The kernel that runs: for float64 the portable one, otherwise `wanted`, or the best one if `wanted` is null.
const AttentionKernel& attention_kernel(AttentionDtype dtype, const AttentionKernel* wanted);

/// Attention of new tokens to a key/value cache, for generation: one token a row, or a prompt. The cache already holds
/// the new tokens. Each batch row b has N = shape.sequence queries. Query i has position lengths[b] - N + i, and sees
/// the keys up to that position, except those that shape.window hides. shape.softcap, scale and `kernel` are as in
/// attention_forward.
///
/// Shapes    out [B*N, H*d]; q [B*N, H*d], whose rows may be slices of longer rows; k_cache, v_cache [B, S_max, K*d];
///           lengths [B] int64: valid tokens in each row of the cache, the new ones included: from N to S_max. There is
///           no argument for documents: only one document's tokens are cached
/// Cost      4 B H N L d operations, where L is the length or the window. For one token or a few, it reads what they
///           see of both caches once per kv head, and allocates nothing after the first calls. From kDecodeRows query
///           rows per kv head on, it runs attention_forward's kernel and allocates that kernel's scratch for the call.
///           Batch rows and kv heads are divided among threads; in attention_forward's kernel, so are the queries of a
///           head
/// Numerics  as attention_forward: computes in the statistics dtype and rounds once. The results are those of
///           attention_forward up to the order of sums. Bits do not depend on threads
/// Errors    ShapeError naming the tensor or the length, before anything is written
void attention_decode(const at::Tensor& out, const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                      const at::Tensor& lengths, const AttentionShape& shape, const AttentionKernel* kernel = nullptr);
/// From this many query rows on (new tokens x query heads of a kv head), keys and values are packed for the block
/// kernel.
constexpr int64_t kDecodeRows = 24;

}  // namespace trireme::ops
