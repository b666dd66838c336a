#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/ops/attention/cudnn.h"
#include "trireme/ops/attention/run.h"
#include "trireme/ops/checks.h"

namespace trireme::ops {
namespace {

int64_t row_length(const AttentionShape& shape) { return (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim; }

/// The starts of documents, or null. Every entry is checked, which costs little beside attention; on a GPU they are not
/// read here.
const int64_t* checked_starts(const at::Tensor& starts, const AttentionShape& shape, at::Device device) {
  if (!starts.defined()) return nullptr;
  const int64_t tokens = shape.batch * shape.sequence;
  const bool fits =
      starts.sizes() == at::IntArrayRef({tokens}) || starts.sizes() == at::IntArrayRef({shape.batch, shape.sequence});
  if (!fits || starts.scalar_type() != at::kLong || !starts.is_contiguous() || starts.device() != device)
    throw ShapeError(fmt::format("attention: starts must be contiguous int64 of [{}] or [{}, {}] on {}, it is {} of {}",
                                 tokens, shape.batch, shape.sequence, device.is_cpu() ? "the CPU" : device.str(),
                                 c10::toString(starts.scalar_type()), c10::str(starts.sizes())));
  const int64_t* first = starts.data_ptr<int64_t>();
  if (!device.is_cpu()) return first;
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t position = i % shape.sequence, before = position == 0 ? 0 : first[i - 1];
    if (first[i] < before || first[i] > position)
      throw ShapeError(
          fmt::format("attention: starts[{}][{}] is {}, it must be {} to {}: the first position of the row's document, "
                      "which never falls from one row to the next",
                      i / shape.sequence, position, first[i], before, position));
  }
  return first;
}

/// Bytes from the start of a packed row q|k|v to its head number `head`.
int64_t bytes_to(int64_t head, const AttentionShape& shape, const at::Tensor& rows) {
  return head * shape.head_dim * static_cast<int64_t>(rows.element_size());
}

/// Checks what forward and backward share, and fills it in: everything is in packed, contiguous rows.
AttentionCall make_call(const AttentionShape& shape, const at::Tensor& out, const at::Tensor& lse,
                        const at::Tensor& qkv, const at::Tensor& starts) {
  AttentionCall call = checked_call("attention", shape);
  const at::ScalarType dtype = qkv.scalar_type();
  attention_dtype("attention", dtype);
  const int64_t tokens = shape.batch * shape.sequence;
  check_tensor("attention", "qkv", qkv, {tokens, row_length(shape)}, dtype);
  check_tensor("attention", "out", out, {tokens, shape.num_heads * shape.head_dim}, dtype);
  check_tensor("attention", "lse", lse, {shape.batch, shape.num_heads, shape.sequence}, statistics_dtype(dtype));
  call.causal = true;
  const AttentionStride packed{shape.sequence * row_length(shape), row_length(shape)};
  const AttentionStride heads{shape.sequence * shape.num_heads * shape.head_dim, shape.num_heads * shape.head_dim};
  call.q_stride = call.kv_stride = call.dq_stride = call.dkv_stride = packed;
  call.out_stride = call.d_out_stride = heads;
  call.lse_batch = shape.num_heads * shape.sequence, call.lse_head = shape.sequence;
  call.q = qkv.const_data_ptr();
  call.k = static_cast<const char*>(call.q) + bytes_to(shape.num_heads, shape, qkv);
  call.v = static_cast<const char*>(call.q) + bytes_to(shape.num_heads + shape.num_kv_heads, shape, qkv);
  call.out = out.data_ptr(), call.lse = lse.data_ptr();
  call.window = shape.window < shape.sequence ? shape.window : 0;  // a wider one hides nothing
  call.starts = checked_starts(starts, shape, qkv.device());
  call.whole_documents = shape.bidirectional;
  if (shape.bidirectional && (shape.window > 0 || qkv.is_cuda()))
    throw ShapeError(
        "attention: a bidirectional call has no window, and runs on the CPU; set window 0 and give it tensors there");
  call.drops = checked_drops("attention", shape.dropout, shape.batch, shape.sequence);
  return call;
}

}  // namespace

int64_t attention_workspace_bytes(const AttentionShape& shape, at::ScalarType dtype) {
  return attention_workspace_for(checked_call("attention", shape), attention_dtype("attention", dtype));
}

int64_t attention_gpu_workspace_bytes(const AttentionShape& shape, at::ScalarType dtype, bool any_order) {
  const AttentionCall call = checked_call("attention", shape);
  if (dtype != at::kBFloat16 || shape.softcap != 0 || !cudnn_takes_heads(call.head_dim)) return 1;
  const CudnnParts parts = cudnn_backward_parts(call, any_order);
  return parts.batch == 0 ? 1 : cudnn_backward_bytes(call, parts.batch, parts.kv_heads, any_order);
}

void attention_forward(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& qkv, const AttentionShape& shape,
                       const at::Tensor& workspace, const at::Tensor& starts, const AttentionKernel* kernel) {
  const AttentionCall call = make_call(shape, out, lse, qkv, starts);
  run_attention("attention", AttentionDirection::forward, call, attention_dtype("attention", qkv.scalar_type()),
                {{"qkv", qkv}, {"out", out}, {"lse", lse}}, workspace, kernel);
}

void attention_backward(const at::Tensor& dqkv, const at::Tensor& d_out, const at::Tensor& out, const at::Tensor& lse,
                        const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& workspace,
                        const at::Tensor& starts, const AttentionKernel* kernel) {
  AttentionCall call = make_call(shape, out, lse, qkv, starts);
  check_tensor("attention", "dqkv", dqkv, qkv.sizes(), qkv.scalar_type());
  check_tensor("attention", "d_out", d_out, out.sizes(), qkv.scalar_type());
  if (dqkv.const_data_ptr() == qkv.const_data_ptr())
    throw ShapeError("attention: dqkv is qkv itself; the backward reads qkv to its end, give it another tensor");
  call.d_out = d_out.const_data_ptr(), call.dq = dqkv.data_ptr();
  call.dk = static_cast<char*>(call.dq) + bytes_to(shape.num_heads, shape, dqkv);
  call.dv = static_cast<char*>(call.dq) + bytes_to(shape.num_heads + shape.num_kv_heads, shape, dqkv);
  run_attention("attention", AttentionDirection::backward, call, attention_dtype("attention", qkv.scalar_type()),
                {{"qkv", qkv}, {"dqkv", dqkv}, {"d_out", d_out}, {"out", out}, {"lse", lse}}, workspace, kernel);
}

}  // namespace trireme::ops
