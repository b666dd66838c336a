// Query-key norm: RMSNorm of each q head and each k head of the packed rows, before rotary.
#include <cstring>
#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda_kernels.h"
#include "trireme/ops/head_norm_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/past_caches.h"
#include "trireme/ops/row_sums.h"

namespace trireme::ops {
namespace {

/// Checks what forward and backward share, and fills it in. `raw` may be undefined.
HeadNorm checked(const char* operation, const char* name, const at::Tensor& qkv, const at::Tensor& raw,
                 const at::Tensor& rstd, const at::Tensor& w_q, const at::Tensor& w_k, int64_t num_heads,
                 int64_t num_kv_heads) {
  const auto dtype = compute_dtype(operation, name, qkv);
  check_dims(operation, name, qkv, 2);
  check_dims(operation, "w_q", w_q, 1);
  const int64_t rows = qkv.size(0), d = w_q.size(0), heads = num_heads + num_kv_heads;
  if (num_heads < 1 || num_kv_heads < 1)
    throw ShapeError(std::string(operation) + ": num_heads=" + std::to_string(num_heads) +
                     " and num_kv_heads=" + std::to_string(num_kv_heads) + " must be at least 1");
  check_tensor(operation, name, qkv, {rows, (heads + num_kv_heads) * d}, dtype);
  check_tensor(operation, "w_q", w_q, {d}, dtype);
  check_tensor(operation, "w_k", w_k, {d}, dtype);
  check_tensor(operation, "rstd", rstd, {rows, heads}, statistics_dtype(dtype));
  if (raw.defined()) check_tensor(operation, "raw", raw, {rows, heads * d}, dtype);
  return {.dtype = storage_of(dtype),
          .row_width = qkv.size(1),
          .num_heads = num_heads,
          .num_kv_heads = num_kv_heads,
          .head_dim = d,
          .eps = 0,
          .weight_offset = 0,
          .qkv = qkv.mutable_data_ptr(),
          .raw = raw.defined() ? raw.mutable_data_ptr() : nullptr,
          .rstd = rstd.mutable_data_ptr(),
          .w_q = w_q.const_data_ptr(),
          .w_k = w_k.const_data_ptr()};
}

}  // namespace

void head_norm_forward(const at::Tensor& qkv, const at::Tensor& raw, const at::Tensor& rstd, const at::Tensor& w_q,
                       const at::Tensor& w_k, int64_t num_heads, int64_t num_kv_heads, double eps,
                       double weight_offset) {
  HeadNorm arguments = checked("head_norm_forward", "qkv", qkv, raw, rstd, w_q, w_k, num_heads, num_kv_heads);
  arguments.eps = eps, arguments.weight_offset = weight_offset;
  if (qkv.is_cuda()) return cuda_kernels().head_norm_forward(arguments, qkv.size(0));
  arguments.past_caches = raw.defined() && past_caches(raw, raw.size(1), qkv.const_data_ptr()) &&
                          past_caches(raw, arguments.head_dim, qkv.const_data_ptr());
  parallel_rows(qkv.size(0), row_grain(qkv.size(1)),
                [&](int64_t first, int64_t last) { head_norm_forward_rows(arguments, first, last); });
}

void head_norm_backward(const at::Tensor& dqkv, const Gradient& dw_q, const Gradient& dw_k, const at::Tensor& raw,
                        const at::Tensor& rstd, const at::Tensor& w_q, const at::Tensor& w_k, int64_t num_heads,
                        int64_t num_kv_heads, double weight_offset) {
  constexpr auto kOperation = "head_norm_backward";
  HeadNorm all = checked(kOperation, "dqkv", dqkv, raw, rstd, w_q, w_k, num_heads, num_kv_heads);
  all.weight_offset = weight_offset;
  const auto dtype = dqkv.scalar_type();
  check_tensor(kOperation, "raw", raw, {dqkv.size(0), (num_heads + num_kv_heads) * all.head_dim}, dtype);
  check_gradient(kOperation, "dw_q", dw_q, w_q.sizes(), dtype);
  check_gradient(kOperation, "dw_k", dw_k, w_k.sizes(), dtype);
  if (dqkv.is_cuda())
    return cuda_kernels().head_norm_backward(all, dqkv.size(0), cuda_gradient(dw_q), cuda_gradient(dw_k));
  const RowBlocks blocks(dqkv.size(0));
  const int64_t partial_bytes = all.head_dim * static_cast<int64_t>(c10::elementSize(statistics_dtype(dtype)));
  struct Partials;
  // Twice: the partials of dw_q, then those of dw_k.
  char* partials = thread_scratch<Partials, char>(2 * blocks.num_blocks * partial_bytes);
  char* k_partials = partials + blocks.num_blocks * partial_bytes;
  parallel_rows(blocks.num_blocks, 1, [&](int64_t first_block, int64_t last_block) {
    for (int64_t block = first_block; block < last_block; ++block) {
      HeadNorm arguments = all;
      arguments.dw_q = std::memset(partials + block * partial_bytes, 0, partial_bytes);
      arguments.dw_k = std::memset(k_partials + block * partial_bytes, 0, partial_bytes);
      head_norm_backward_rows(arguments, blocks.first(block), blocks.last(block));
    }
  });
  combine_partials(dw_q, partials, blocks.num_blocks);
  combine_partials(dw_k, k_partials, blocks.num_blocks);
}

}  // namespace trireme::ops
