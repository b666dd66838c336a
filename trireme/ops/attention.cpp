#include "trireme/ops/attention.h"

#include "trireme/base/error.h"
#include "trireme/ops/attention_run.h"
#include "trireme/ops/checks.h"

namespace trireme::ops {
namespace {

int64_t row_length(const AttentionShape& shape) { return (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim; }

void check_shape(const AttentionShape& shape) {
  check_attention_sizes("attention", {{"batch", shape.batch},
                                      {"sequence", shape.sequence},
                                      {"num_heads", shape.num_heads},
                                      {"num_kv_heads", shape.num_kv_heads},
                                      {"head_dim", shape.head_dim}});
  check_attention_heads("attention", shape.num_heads, shape.num_kv_heads);
}

/// Bytes from the start of a packed row q|k|v to its head `head`.
int64_t bytes_to(int64_t head, const AttentionShape& shape, const at::Tensor& rows) {
  return head * shape.head_dim * static_cast<int64_t>(rows.element_size());
}

/// The call without its outputs' gradients: everything lies in packed, contiguous rows.
AttentionCall make_call(const AttentionShape& shape, const at::Tensor& out, const at::Tensor& lse,
                        const at::Tensor& qkv) {
  AttentionCall call{};
  call.batch = shape.batch, call.queries = call.keys = shape.sequence, call.num_heads = shape.num_heads;
  call.num_kv_heads = shape.num_kv_heads, call.head_dim = shape.head_dim, call.causal = true;
  call.scale = attention_scale(shape.scale, shape.head_dim);
  const AttentionStride packed{shape.sequence * row_length(shape), row_length(shape)};
  const AttentionStride heads{shape.sequence * shape.num_heads * shape.head_dim, shape.num_heads * shape.head_dim};
  call.q_stride = call.kv_stride = call.dq_stride = call.dkv_stride = packed;
  call.out_stride = call.d_out_stride = heads;
  call.lse_batch = shape.num_heads * shape.sequence, call.lse_head = shape.sequence;
  call.q = qkv.const_data_ptr();
  call.k = static_cast<const char*>(call.q) + bytes_to(shape.num_heads, shape, qkv);
  call.v = static_cast<const char*>(call.q) + bytes_to(shape.num_heads + shape.num_kv_heads, shape, qkv);
  call.out = out.data_ptr(), call.lse = lse.data_ptr();
  return call;
}

}  // namespace

int64_t attention_workspace_bytes(const AttentionShape& shape, at::ScalarType dtype) {
  check_shape(shape);
  return attention_scratch_of({shape.batch * shape.num_kv_heads, shape.sequence, shape.head_dim},
                              attention_dtype("attention", dtype));
}

void attention_forward_with(const AttentionKernel& kernel, const at::Tensor& out, const at::Tensor& lse,
                            const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& workspace) {
  check_shape(shape);
  const at::ScalarType dtype = qkv.scalar_type();
  const AttentionDtype kind = attention_dtype("attention", dtype);
  const int64_t tokens = shape.batch * shape.sequence;
  check_tensor("attention", "qkv", qkv, {tokens, row_length(shape)}, dtype);
  check_tensor("attention", "out", out, {tokens, shape.num_heads * shape.head_dim}, dtype);
  check_tensor("attention", "lse", lse, {shape.batch, shape.num_heads, shape.sequence}, statistics_dtype(dtype));
  run_attention("attention", kernel, &AttentionKernel::forward, make_call(shape, out, lse, qkv), kind, workspace);
}

void attention_backward_with(const AttentionKernel& kernel, const at::Tensor& dqkv, const at::Tensor& d_out,
                             const at::Tensor& out, const at::Tensor& lse, const at::Tensor& qkv,
                             const AttentionShape& shape, const at::Tensor& workspace) {
  check_shape(shape);
  const at::ScalarType dtype = qkv.scalar_type();
  const AttentionDtype kind = attention_dtype("attention", dtype);
  const int64_t tokens = shape.batch * shape.sequence;
  check_tensor("attention", "qkv", qkv, {tokens, row_length(shape)}, dtype);
  check_tensor("attention", "dqkv", dqkv, {tokens, row_length(shape)}, dtype);
  check_tensor("attention", "d_out", d_out, {tokens, shape.num_heads * shape.head_dim}, dtype);
  check_tensor("attention", "out", out, {tokens, shape.num_heads * shape.head_dim}, dtype);
  check_tensor("attention", "lse", lse, {shape.batch, shape.num_heads, shape.sequence}, statistics_dtype(dtype));
  if (dqkv.const_data_ptr() == qkv.const_data_ptr())
    throw ShapeError("attention: dqkv is qkv itself; the backward reads qkv to its end, give it another tensor");
  AttentionCall call = make_call(shape, out, lse, qkv);
  call.d_out = d_out.const_data_ptr(), call.dq = dqkv.data_ptr();
  call.dk = static_cast<char*>(call.dq) + bytes_to(shape.num_heads, shape, dqkv);
  call.dv = static_cast<char*>(call.dq) + bytes_to(shape.num_heads + shape.num_kv_heads, shape, dqkv);
  run_attention("attention", kernel, &AttentionKernel::backward, call, kind, workspace);
}

void attention_forward(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& qkv, const AttentionShape& shape,
                       const at::Tensor& workspace) {
  attention_forward_with(*attention_kernels().front(), out, lse, qkv, shape, workspace);
}

void attention_backward(const at::Tensor& dqkv, const at::Tensor& d_out, const at::Tensor& out, const at::Tensor& lse,
                        const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& workspace) {
  attention_backward_with(*attention_kernels().front(), dqkv, d_out, out, lse, qkv, shape, workspace);
}

}  // namespace trireme::ops
