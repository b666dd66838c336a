// Attention of views without a mask, merged with what is there: ring attention's blocks off the diagonal. The work is
// done by attention's kernels; here is what a view must be, and where its parts lie.
#include "trireme/base/error.h"
#include "trireme/ops/attention.h"
#include "trireme/ops/attention_run.h"
#include "trireme/ops/checks.h"

namespace trireme::ops {
namespace {

constexpr auto kBlockOperation = "attention_block";

AttentionDtype check_shape(const AttentionBlockShape& shape, at::ScalarType dtype) {
  check_attention_sizes(kBlockOperation, {{"batch", shape.batch},
                                          {"queries", shape.queries},
                                          {"keys", shape.keys},
                                          {"num_heads", shape.num_heads},
                                          {"num_kv_heads", shape.num_kv_heads},
                                          {"head_dim", shape.head_dim}});
  check_attention_heads(kBlockOperation, shape.num_heads, shape.num_kv_heads);
  check_attention_softcap(kBlockOperation, shape.softcap);
  return attention_dtype(kBlockOperation, dtype);
}

AttentionStride strides_of(const at::Tensor& x) { return {x.stride(0), x.stride(1)}; }

/// Bytes from the k heads of a row of kv (or of its gradient) to the v heads.
int64_t bytes_to_v(const AttentionBlockShape& shape, const at::Tensor& kv) {
  return shape.num_kv_heads * shape.head_dim * static_cast<int64_t>(kv.element_size());
}

/// Checks what forward and backward share, and fills it in.
AttentionCall make_call(const AttentionBlockShape& shape, const at::Tensor& out, const at::Tensor& lse,
                        const at::Tensor& q, const at::Tensor& kv) {
  const int64_t width = shape.num_heads * shape.head_dim, kv_width = 2 * shape.num_kv_heads * shape.head_dim;
  const auto dtype = q.scalar_type();
  check_rows_view(kBlockOperation, "q", q, {shape.batch, shape.queries, width}, dtype);
  check_rows_view(kBlockOperation, "kv", kv, {shape.batch, shape.keys, kv_width}, dtype);
  check_rows_view(kBlockOperation, "out", out, {shape.batch, shape.queries, width}, dtype);
  check_rows_view(kBlockOperation, "lse", lse, {shape.batch, shape.num_heads, shape.queries}, statistics_dtype(dtype));
  AttentionCall call{};
  call.batch = shape.batch, call.queries = shape.queries, call.keys = shape.keys, call.num_heads = shape.num_heads;
  call.num_kv_heads = shape.num_kv_heads, call.head_dim = shape.head_dim, call.causal = false;
  call.scale = attention_scale(shape.scale, shape.head_dim), call.softcap = shape.softcap;
  call.q = q.const_data_ptr(), call.out = out.data_ptr(), call.lse = lse.data_ptr();
  call.k = kv.const_data_ptr(), call.v = static_cast<const char*>(call.k) + bytes_to_v(shape, kv);
  call.q_stride = strides_of(q), call.kv_stride = strides_of(kv), call.out_stride = strides_of(out);
  call.lse_batch = lse.stride(0), call.lse_head = lse.stride(1);
  return call;
}

}  // namespace

int64_t attention_block_workspace_bytes(const AttentionBlockShape& shape, at::ScalarType dtype) {
  const auto kind = check_shape(shape, dtype);
  return attention_scratch_of({shape.batch * shape.num_kv_heads, shape.keys, shape.head_dim}, kind);
}

void attention_block_forward_with(const AttentionKernel& kernel, const at::Tensor& out, const at::Tensor& lse,
                                  const at::Tensor& q, const at::Tensor& kv, const AttentionBlockShape& shape,
                                  const at::Tensor& workspace) {
  const auto kind = check_shape(shape, compute_dtype(kBlockOperation, "q", q));
  const AttentionCall call = make_call(shape, out, lse, q, kv);
  if (on_one_gpu(kBlockOperation, {{"q", q}, {"out", out}, {"lse", lse}, {"kv", kv}}))
    return run_attention_cuda(AttentionDirection::forward, call, kind);
  run_attention(kBlockOperation, kernel, AttentionDirection::forward, call, kind, workspace);
}

void attention_block_backward_with(const AttentionKernel& kernel, const at::Tensor& dq, const at::Tensor& dkv,
                                   const at::Tensor& d_out, const at::Tensor& out, const at::Tensor& lse,
                                   const at::Tensor& q, const at::Tensor& kv, const AttentionBlockShape& shape,
                                   const at::Tensor& workspace) {
  const auto dtype = compute_dtype(kBlockOperation, "q", q), wide = statistics_dtype(dtype);
  const auto kind = check_shape(shape, dtype);
  AttentionCall call = make_call(shape, out, lse, q, kv);
  check_rows_view(kBlockOperation, "d_out", d_out, q.sizes(), dtype);
  check_rows_view(kBlockOperation, "dq", dq, q.sizes(), wide);
  check_rows_view(kBlockOperation, "dkv", dkv, kv.sizes(), wide);
  call.d_out = d_out.const_data_ptr(), call.dq = dq.data_ptr(), call.dk = dkv.data_ptr();
  call.dv = static_cast<char*>(call.dk) + bytes_to_v(shape, dkv);
  call.d_out_stride = strides_of(d_out), call.dq_stride = strides_of(dq), call.dkv_stride = strides_of(dkv);
  if (on_one_gpu(kBlockOperation,
                 {{"q", q}, {"dq", dq}, {"dkv", dkv}, {"d_out", d_out}, {"out", out}, {"lse", lse}, {"kv", kv}}))
    return run_attention_cuda(AttentionDirection::backward, call, kind);
  run_attention(kBlockOperation, kernel, AttentionDirection::backward, call, kind, workspace);
}

void attention_block_forward(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& q, const at::Tensor& kv,
                             const AttentionBlockShape& shape, const at::Tensor& workspace) {
  attention_block_forward_with(*attention_kernels().front(), out, lse, q, kv, shape, workspace);
}

void attention_block_backward(const at::Tensor& dq, const at::Tensor& dkv, const at::Tensor& d_out,
                              const at::Tensor& out, const at::Tensor& lse, const at::Tensor& q, const at::Tensor& kv,
                              const AttentionBlockShape& shape, const at::Tensor& workspace) {
  attention_block_backward_with(*attention_kernels().front(), dq, dkv, d_out, out, lse, q, kv, shape, workspace);
}

}  // namespace trireme::ops
