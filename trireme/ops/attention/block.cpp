// Attention without a mask, on views, merged with what `out` and `lse` hold: ring attention's blocks off the diagonal.
// Attention's kernels do the work; this file checks the views and finds their parts.
#include "trireme/ops/attention/run.h"
#include "trireme/ops/checks.h"

namespace trireme::ops {
namespace {

constexpr auto kBlockOperation = "attention_block";

AttentionStride strides_of(const at::Tensor& x) { return {x.stride(0), x.stride(1)}; }

/// Bytes from the k heads of a row of kv (or of its gradient) to the v heads.
int64_t bytes_to_v(const AttentionBlockShape& shape, const at::Tensor& kv) {
  return shape.num_kv_heads * shape.head_dim * static_cast<int64_t>(kv.element_size());
}

/// Checks what forward and backward share, and fills it in.
AttentionCall make_call(const AttentionBlockShape& shape, const at::Tensor& out, const at::Tensor& lse,
                        const at::Tensor& q, const at::Tensor& kv) {
  AttentionCall call = checked_call(kBlockOperation, shape);
  const int64_t width = shape.num_heads * shape.head_dim, kv_width = 2 * shape.num_kv_heads * shape.head_dim;
  const auto dtype = compute_dtype(kBlockOperation, "q", q);
  check_rows_view(kBlockOperation, "q", q, {shape.batch, shape.queries, width}, dtype);
  check_rows_view(kBlockOperation, "kv", kv, {shape.batch, shape.keys, kv_width}, dtype);
  check_rows_view(kBlockOperation, "out", out, {shape.batch, shape.queries, width}, dtype);
  check_rows_view(kBlockOperation, "lse", lse, {shape.batch, shape.num_heads, shape.queries}, statistics_dtype(dtype));
  call.q = q.const_data_ptr(), call.out = out.data_ptr(), call.lse = lse.data_ptr();
  call.k = kv.const_data_ptr(), call.v = static_cast<const char*>(call.k) + bytes_to_v(shape, kv);
  call.q_stride = strides_of(q), call.kv_stride = strides_of(kv), call.out_stride = strides_of(out);
  call.lse_batch = lse.stride(0), call.lse_head = lse.stride(1);
  call.drops = checked_drops(kBlockOperation, shape.dropout, shape.batch, shape.queries);
  return call;
}

}  // namespace

int64_t attention_block_workspace_bytes(const AttentionBlockShape& shape, at::ScalarType dtype) {
  return attention_workspace_for(checked_call(kBlockOperation, shape), attention_dtype(kBlockOperation, dtype));
}

void attention_block_forward(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& q, const at::Tensor& kv,
                             const AttentionBlockShape& shape, const at::Tensor& workspace,
                             const AttentionKernel* kernel) {
  const AttentionCall call = make_call(shape, out, lse, q, kv);
  run_attention(kBlockOperation, AttentionDirection::forward, call, attention_dtype(kBlockOperation, q.scalar_type()),
                {{"q", q}, {"out", out}, {"lse", lse}, {"kv", kv}}, workspace, kernel);
}

void attention_block_backward(const at::Tensor& dq, const at::Tensor& dkv, const at::Tensor& d_out,
                              const at::Tensor& out, const at::Tensor& lse, const at::Tensor& q, const at::Tensor& kv,
                              const AttentionBlockShape& shape, const at::Tensor& workspace,
                              const AttentionKernel* kernel) {
  AttentionCall call = make_call(shape, out, lse, q, kv);
  const auto dtype = q.scalar_type(), wide = statistics_dtype(dtype);
  check_rows_view(kBlockOperation, "d_out", d_out, q.sizes(), dtype);
  check_rows_view(kBlockOperation, "dq", dq, q.sizes(), wide);
  check_rows_view(kBlockOperation, "dkv", dkv, kv.sizes(), wide);
  call.d_out = d_out.const_data_ptr(), call.dq = dq.data_ptr(), call.dk = dkv.data_ptr();
  call.dv = static_cast<char*>(call.dk) + bytes_to_v(shape, dkv);
  call.d_out_stride = strides_of(d_out), call.dq_stride = strides_of(dq), call.dkv_stride = strides_of(dkv);
  run_attention(kBlockOperation, AttentionDirection::backward, call, attention_dtype(kBlockOperation, dtype),
                {{"q", q}, {"dq", dq}, {"dkv", dkv}, {"d_out", d_out}, {"out", out}, {"lse", lse}, {"kv", kv}},
                workspace, kernel);
}

}  // namespace trireme::ops
