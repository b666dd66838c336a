// Query-key norm: RMSNorm of each q head and each k head of the packed rows, before rotary.
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/norm/norm_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/simd/past_caches.h"
#include "trireme/ops/simd/row_sums.h"

namespace trireme::ops {
namespace {

/// Checks what forward and backward share, and fills it in. `raw` may be undefined.
HeadNorm checked(const char* operation, const char* name, const at::Tensor& qkv, const at::Tensor& raw,
                 const at::Tensor& rstd, const at::Tensor& w_q, const at::Tensor& w_k, int64_t num_heads,
                 int64_t num_kv_heads, double eps, double weight_offset) {
  const auto dtype = compute_dtype(operation, name, qkv);
  check_dims(operation, name, qkv, 2);
  check_dims(operation, "w_q", w_q, 1);
  const int64_t rows = qkv.size(0), d = w_q.size(0), heads = num_heads + num_kv_heads;
  if (num_heads < 1 || num_kv_heads < 1)
    throw ShapeError(
        fmt::format("{}: num_heads={} and num_kv_heads={} must be at least 1", operation, num_heads, num_kv_heads));
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
          .eps = eps,
          .weight_offset = weight_offset,
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
  HeadNorm arguments =
      checked("head_norm_forward", "qkv", qkv, raw, rstd, w_q, w_k, num_heads, num_kv_heads, eps, weight_offset);
  const Announced announced([&] {
    return row_operation("head_norm_forward", qkv.scalar_type(), qkv.size(0), qkv.size(1), {&qkv, &qkv, &raw});
  });
  if (announced.skipped()) return;
  if (qkv.is_cuda()) return cuda_kernels().head_norm_forward(arguments, qkv.size(0));
  arguments.past_caches = raw.defined() && past_caches(raw, raw.size(1), qkv.const_data_ptr()) &&
                          past_caches(raw, arguments.head_dim, qkv.const_data_ptr());
  run_rows(head_norm_forward_rows, arguments, qkv.size(0), qkv.size(1));
}

void head_norm_backward(const at::Tensor& dqkv, const Gradient& dw_q, const Gradient& dw_k, const at::Tensor& raw,
                        const at::Tensor& rstd, const at::Tensor& w_q, const at::Tensor& w_k, int64_t num_heads,
                        int64_t num_kv_heads, double weight_offset) {
  constexpr auto kOperation = "head_norm_backward";
  const HeadNorm all =
      checked(kOperation, "dqkv", dqkv, raw, rstd, w_q, w_k, num_heads, num_kv_heads, 0, weight_offset);
  const auto dtype = dqkv.scalar_type();
  check_tensor(kOperation, "raw", raw, {dqkv.size(0), (num_heads + num_kv_heads) * all.head_dim}, dtype);
  check_gradient(kOperation, "dw_q", dw_q, w_q.sizes(), dtype);
  check_gradient(kOperation, "dw_k", dw_k, w_k.sizes(), dtype);
  const Announced announced(
      [&] { return row_operation("head_norm_backward", dtype, dqkv.size(0), dqkv.size(1), {&dqkv, &dqkv, &raw}); });
  if (announced.skipped()) return;
  if (dqkv.is_cuda())
    return cuda_kernels().head_norm_backward(all, dqkv.size(0), cuda_gradient(dw_q), cuda_gradient(dw_k));
  sum_rows({&dw_q, &dw_k}, dqkv.size(0), all.head_dim, statistics_dtype(dtype),
           [&](int64_t first, int64_t last, void* const* sums) {
             HeadNorm arguments = all;
             arguments.dw_q = sums[0], arguments.dw_k = sums[1];
             head_norm_backward_rows(arguments, first, last);
           });
}

}  // namespace trireme::ops
