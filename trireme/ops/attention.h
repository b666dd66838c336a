// Attention beyond the functions in ops.h: the choice of kernel, and one step of decoding from a cache.
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

/// One query row per batch row against a key/value cache, for generation.
///
/// Shapes    out, q [B, H*d]; k_cache, v_cache [B, S_max, K*d]; lengths [B] int64: tokens valid in each row of
///           the cache, the new one included, 1 .. S_max. shape.sequence is not read. With
///           shape.window the last `window` of them count; documents need nothing here, their tokens are not cached
/// Cost      reads lengths (at most window) * K * d of both caches; no scratch, no allocation; one thread
/// Numerics  as attention_forward: statistics dtype inside, one rounding; equals its last row up to summation order
/// Errors    ShapeError naming the tensor or the length
void attention_decode(const at::Tensor& out, const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                      const at::Tensor& lengths, const AttentionShape& shape);

}  // namespace trireme::ops
