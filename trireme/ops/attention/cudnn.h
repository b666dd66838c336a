// When cuDNN's attention runs, and the workspace of its backward.
#pragma once

#include <cstdint>

#include "trireme/ops/attention/kernels.h"

namespace trireme::ops {

/// The workspace of cuDNN's backward on an NVIDIA GPU for part of a call: `batch` sequences, and `kv_heads` of them.
/// Found by asking cuDNN 9.19 on an H100: it keeps dq in fp32, or all gradients of scores where the order of sums is
/// fixed; keys' and values' gradients of every query head where heads are grouped; and the sums of rows.
constexpr int64_t cudnn_backward_bytes(const AttentionCall& call, int64_t batch, int64_t kv_heads, bool any_order) {
  const int64_t group = call.num_heads / call.num_kv_heads, heads = kv_heads * group;
  const int64_t rows = (call.queries + 127) / 128 * 128, all = batch * heads * rows;
  const int64_t of_queries = any_order ? 4 * call.head_dim : 2 * rows;
  return all * (of_queries + (group > 1 ? 4 * call.head_dim : 0) + 4) + (1 << 20);
}

/// The sizes of heads that cuDNN has kernels for.
constexpr bool cudnn_takes_heads(int64_t head_dim) { return head_dim % 8 == 0 && head_dim <= 128; }

/// A call in parts of equal size, so that a fixed order of sums does not take more workspace than kOrderedBytes.
struct CudnnParts {
  int64_t batch, kv_heads;  ///< of a part; 0: no part is small enough
};
constexpr int64_t kCudnnOrderedBytes = int64_t{1152} << 20;
constexpr CudnnParts cudnn_backward_parts(const AttentionCall& call, bool any_order) {
  if (any_order) return {call.batch, call.num_kv_heads};
  const auto fits = [&](int64_t batch) {
    return call.batch % batch == 0 && cudnn_backward_bytes(call, batch, call.num_kv_heads, false) <= kCudnnOrderedBytes;
  };
  // The divisors, the largest first: those above the root by their number of parts, as trireme plan takes any batch.
  int64_t parts = 1;
  for (; parts * parts <= call.batch; ++parts)
    if (call.batch % parts == 0 && fits(call.batch / parts)) return {call.batch / parts, call.num_kv_heads};
  for (int64_t batch = parts - 1; batch > 0; --batch)
    if (fits(batch)) return {batch, call.num_kv_heads};
  for (int64_t heads = call.num_kv_heads; heads > 0; --heads)
    if (call.num_kv_heads % heads == 0 && cudnn_backward_bytes(call, 1, heads, false) <= kCudnnOrderedBytes)
      return {1, heads};
  return {0, 0};
}

namespace cuda {

/// Runs cuDNN's kernel (cudnn_cuda.cpp); false if it does not support the call, of which nothing has run then.
/// `any_order`: gradients may be added in an order that differs from run to run.
bool cudnn_attention(const AttentionCall& call, AttentionDtype dtype, bool backward, bool any_order);

/// Whether 16 bytes can be read at a time, as cuDNN and flash attention do.
inline bool in_packs(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }
inline bool in_packs(AttentionStride stride) { return stride.batch % 8 == 0 && stride.row % 8 == 0; }

}  // namespace cuda
}  // namespace trireme::ops
