#include "trireme/ops/attention.h"

#include <string>

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
  check_attention_window("attention", shape.window);
  check_attention_softcap("attention", shape.softcap);
}

std::string entry(int64_t i, const AttentionShape& shape) {
  return "starts[" + std::to_string(i / shape.sequence) + "][" + std::to_string(i % shape.sequence) + "]";
}

/// The starts of documents, or null; every entry is checked, which costs nothing beside attention. On a GPU they are
/// not read here.
const int64_t* checked_starts(const at::Tensor& starts, const AttentionShape& shape, at::Device device) {
  if (!starts.defined()) return nullptr;
  const int64_t tokens = shape.batch * shape.sequence;
  const bool fits =
      starts.sizes() == at::IntArrayRef({tokens}) || starts.sizes() == at::IntArrayRef({shape.batch, shape.sequence});
  if (!fits || starts.scalar_type() != at::kLong || !starts.is_contiguous() || starts.device() != device)
    throw ShapeError("attention: starts must be contiguous int64 of [" + std::to_string(tokens) + "] or [" +
                     std::to_string(shape.batch) + ", " + std::to_string(shape.sequence) + "] on " +
                     (device.is_cpu() ? "the CPU" : device.str()) + ", it is " + c10::toString(starts.scalar_type()) +
                     " of " + c10::str(starts.sizes()));
  const int64_t* first = starts.data_ptr<int64_t>();
  if (!device.is_cpu()) return first;
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t position = i % shape.sequence, before = position == 0 ? 0 : first[i - 1];
    if (first[i] < before || first[i] > position)
      throw ShapeError("attention: " + entry(i, shape) + " is " + std::to_string(first[i]) + ", it must be " +
                       std::to_string(before) + " to " + std::to_string(position) +
                       ": the first position of the row's document, which no later row comes back to");
  }
  return first;
}

/// Bytes from the start of a packed row q|k|v to its head `head`.
int64_t bytes_to(int64_t head, const AttentionShape& shape, const at::Tensor& rows) {
  return head * shape.head_dim * static_cast<int64_t>(rows.element_size());
}

/// The call without its outputs' gradients: everything lies in packed, contiguous rows.
AttentionCall make_call(const AttentionShape& shape, const at::Tensor& out, const at::Tensor& lse,
                        const at::Tensor& qkv, const at::Tensor& starts) {
  AttentionCall call{};
  call.batch = shape.batch, call.queries = call.keys = shape.sequence, call.num_heads = shape.num_heads;
  call.num_kv_heads = shape.num_kv_heads, call.head_dim = shape.head_dim, call.causal = true;
  call.scale = attention_scale(shape.scale, shape.head_dim), call.softcap = shape.softcap;
  const AttentionStride packed{shape.sequence * row_length(shape), row_length(shape)};
  const AttentionStride heads{shape.sequence * shape.num_heads * shape.head_dim, shape.num_heads * shape.head_dim};
  call.q_stride = call.kv_stride = call.dq_stride = call.dkv_stride = packed;
  call.out_stride = call.d_out_stride = heads;
  call.lse_batch = shape.num_heads * shape.sequence, call.lse_head = shape.sequence;
  call.q = qkv.const_data_ptr();
  call.k = static_cast<const char*>(call.q) + bytes_to(shape.num_heads, shape, qkv);
  call.v = static_cast<const char*>(call.q) + bytes_to(shape.num_heads + shape.num_kv_heads, shape, qkv);
  call.out = out.data_ptr(), call.lse = lse.data_ptr();
  // Wider than the sequence hides nothing.
  call.window = shape.window < shape.sequence ? shape.window : 0,
  call.starts = checked_starts(starts, shape, qkv.device());
  return call;
}

}  // namespace

int64_t attention_workspace_bytes(const AttentionShape& shape, at::ScalarType dtype) {
  check_shape(shape);
  return attention_scratch_of({shape.batch * shape.num_kv_heads, shape.sequence, shape.head_dim},
                              attention_dtype("attention", dtype));
}

void attention_forward_with(const AttentionKernel& kernel, const at::Tensor& out, const at::Tensor& lse,
                            const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& workspace,
                            const at::Tensor& starts) {
  check_shape(shape);
  const at::ScalarType dtype = qkv.scalar_type();
  const AttentionDtype kind = attention_dtype("attention", dtype);
  const int64_t tokens = shape.batch * shape.sequence;
  check_tensor("attention", "qkv", qkv, {tokens, row_length(shape)}, dtype);
  check_tensor("attention", "out", out, {tokens, shape.num_heads * shape.head_dim}, dtype);
  check_tensor("attention", "lse", lse, {shape.batch, shape.num_heads, shape.sequence}, statistics_dtype(dtype));
  const bool on_gpu = on_one_gpu("attention", {{"qkv", qkv}, {"out", out}, {"lse", lse}});
  const AttentionCall call = make_call(shape, out, lse, qkv, starts);
  if (on_gpu) return run_attention_cuda(AttentionDirection::forward, call, kind);
  run_attention("attention", kernel, AttentionDirection::forward, call, kind, workspace);
}

void attention_backward_with(const AttentionKernel& kernel, const at::Tensor& dqkv, const at::Tensor& d_out,
                             const at::Tensor& out, const at::Tensor& lse, const at::Tensor& qkv,
                             const AttentionShape& shape, const at::Tensor& workspace, const at::Tensor& starts) {
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
  const bool on_gpu =
      on_one_gpu("attention", {{"qkv", qkv}, {"dqkv", dqkv}, {"d_out", d_out}, {"out", out}, {"lse", lse}});
  AttentionCall call = make_call(shape, out, lse, qkv, starts);
  call.d_out = d_out.const_data_ptr(), call.dq = dqkv.data_ptr();
  call.dk = static_cast<char*>(call.dq) + bytes_to(shape.num_heads, shape, dqkv);
  call.dv = static_cast<char*>(call.dq) + bytes_to(shape.num_heads + shape.num_kv_heads, shape, dqkv);
  if (on_gpu) return run_attention_cuda(AttentionDirection::backward, call, kind);
  run_attention("attention", kernel, AttentionDirection::backward, call, kind, workspace);
}

void attention_forward(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& qkv, const AttentionShape& shape,
                       const at::Tensor& workspace, const at::Tensor& starts) {
  attention_forward_with(*attention_kernels().front(), out, lse, qkv, shape, workspace, starts);
}

void attention_backward(const at::Tensor& dqkv, const at::Tensor& d_out, const at::Tensor& out, const at::Tensor& lse,
                        const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& workspace,
                        const at::Tensor& starts) {
  attention_backward_with(*attention_kernels().front(), dqkv, d_out, out, lse, qkv, shape, workspace, starts);
}

}  // namespace trireme::ops
