// Attention beyond the functions in ops.h: the choice of kernel, and decoding from a cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "trireme/ops/attention_kernel.h"
#include "trireme/ops/ops.h"

namespace trireme::ops {

/// The kernels this processor can run, best first; attention_forward and attention_backward use the first.
std::span<const AttentionKernel* const> attention_kernels();

/// attention_forward and attention_backward with a given kernel (of attention_kernels(); float64 runs in the
/// portable one whatever is given).
void attention_forward_with(const AttentionKernel& kernel, const at::Tensor& out, const at::Tensor& lse,
                            const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& workspace,
                            const at::Tensor& starts = {});
void attention_backward_with(const AttentionKernel& kernel, const at::Tensor& dqkv, const at::Tensor& d_out,
                             const at::Tensor& out, const at::Tensor& lse, const at::Tensor& qkv,
                             const AttentionShape& shape, const at::Tensor& workspace, const at::Tensor& starts = {});

/// attention_block_forward and attention_block_backward with a given kernel, as above.
void attention_block_forward_with(const AttentionKernel& kernel, const at::Tensor& out, const at::Tensor& lse,
                                  const at::Tensor& q, const at::Tensor& kv, const AttentionBlockShape& shape,
                                  const at::Tensor& workspace);
void attention_block_backward_with(const AttentionKernel& kernel, const at::Tensor& dq, const at::Tensor& dkv,
                                   const at::Tensor& d_out, const at::Tensor& out, const at::Tensor& lse,
                                   const at::Tensor& q, const at::Tensor& kv, const AttentionBlockShape& shape,
                                   const at::Tensor& workspace);

/// Attention of new tokens to a key/value cache that holds them already, for generation: one token a row, or a prompt.
/// Query i of a row of N = shape.sequence has position lengths[b] - N + i and sees the keys up to it, of which
/// shape.window hides the early ones; shape.softcap and scale as in attention_forward.
///
/// Shapes    out [B*N, H*d]; q [B*N, H*d], whose rows may lie in longer ones; k_cache, v_cache [B, S_max, K*d]; lengths
///           [B] int64: tokens valid in each row of the cache, the new ones included, N .. S_max. Documents need
///           nothing here, their tokens are not cached
/// Cost      4 B H N (length, or window) d operations. One token, or a few: reads what they see of both caches once per
///           kv head; allocates nothing once warm. More (kDecodeRows query rows per kv head): attention_forward's
///           kernel, and allocates its scratch for the call. Threads share batch rows and kv heads, in the kernel also
///           the queries of a head
/// Numerics  as attention_forward: statistics dtype inside, one rounding; equals its rows up to summation order. Bits
/// do
///           not depend on threads
/// Errors    ShapeError naming the tensor or the length, before anything is written
void attention_decode(const at::Tensor& out, const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                      const at::Tensor& lengths, const AttentionShape& shape);
void attention_decode_with(const AttentionKernel& kernel, const at::Tensor& out, const at::Tensor& q,
                           const at::Tensor& k_cache, const at::Tensor& v_cache, const at::Tensor& lengths,
                           const AttentionShape& shape);
/// Query rows (new tokens x query heads of a kv head) from which on keys and values are packed for the block kernel.
constexpr int64_t kDecodeRows = 24;

}  // namespace trireme::ops
