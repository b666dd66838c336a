#include "trireme/ops/attention.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

int64_t row_length(const AttentionShape& shape) { return (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim; }

AttentionDtype kernel_dtype(at::ScalarType dtype) {
  if (dtype == at::kDouble) return AttentionDtype::float64;
  if (dtype == at::kFloat) return AttentionDtype::float32;
  if (dtype == at::kBFloat16) return AttentionDtype::bfloat16;
  throw ShapeError(std::string("attention: ") + c10::toString(dtype) +
                   " has no kernel; use float64, float32 or bfloat16");
}

void check_shape(const AttentionShape& shape) {
  const auto refuse = [](const char* name, int64_t value) {
    throw ShapeError(std::string("attention: ") + name + " is " + std::to_string(value) + ", it must be at least 1");
  };
  if (shape.batch < 1) refuse("batch", shape.batch);
  if (shape.sequence < 1) refuse("sequence", shape.sequence);
  if (shape.num_heads < 1) refuse("num_heads", shape.num_heads);
  if (shape.num_kv_heads < 1) refuse("num_kv_heads", shape.num_kv_heads);
  if (shape.head_dim < 1) refuse("head_dim", shape.head_dim);
  if (shape.num_heads % shape.num_kv_heads != 0)
    throw ShapeError("attention: num_kv_heads=" + std::to_string(shape.num_kv_heads) + " does not divide num_heads=" +
                     std::to_string(shape.num_heads) + "; each key/value head serves the same number of query heads");
}

int64_t scratch_per_thread(const AttentionShape& shape, AttentionDtype dtype) {
  const int64_t bytes = attention_scratch_bytes(shape.sequence, shape.head_dim, dtype);
  return (bytes + 63) / 64 * 64;
}

constexpr int64_t kAlignment = 64;

/// Runs every job, job j on slot j % slots; a slot owns a slice of the workspace. As many slots as there are
/// threads and slices: a workspace planned for fewer threads only makes the call slower.
void run_jobs(AttentionJob run, const AttentionCall& call, AttentionDtype dtype, const AttentionShape& shape,
              const at::Tensor& workspace) {
  const int64_t jobs = call.batch * call.num_kv_heads, slice = scratch_per_thread(shape, dtype);
  const int64_t available = workspace.defined() ? static_cast<int64_t>(workspace.nbytes()) : 0;
  if (available < slice + kAlignment)
    throw ShapeError("attention: the workspace has " + std::to_string(available) + " bytes and needs at least " +
                     std::to_string(slice + kAlignment) + "; allocate attention_workspace_bytes()");
  if (!workspace.is_contiguous() || !workspace.is_cpu())
    throw ShapeError("attention: the workspace must be a contiguous CPU tensor");
  const auto base = reinterpret_cast<uintptr_t>(workspace.data_ptr());
  char* const aligned = static_cast<char*>(workspace.data_ptr()) + ((kAlignment - base % kAlignment) % kAlignment);

  const int64_t slots = std::min({static_cast<int64_t>(at::get_num_threads()), jobs, (available - kAlignment) / slice});
  parallel_rows(slots, 1, [&](int64_t first, int64_t last) {
    for (int64_t slot = first; slot < last; ++slot)
      for (int64_t job = slot; job < jobs; job += slots) run(call, job, aligned + slot * slice);
  });
}

AttentionCall make_call(const AttentionShape& shape) {
  AttentionCall call{};
  call.batch = shape.batch, call.sequence = shape.sequence, call.num_heads = shape.num_heads;
  call.num_kv_heads = shape.num_kv_heads, call.head_dim = shape.head_dim;
  call.scale = shape.scale != 0 ? shape.scale : 1 / std::sqrt(static_cast<double>(shape.head_dim));
  return call;
}

const AttentionKernel& kernel_for(const AttentionKernel& wanted, AttentionDtype dtype) {
  return dtype == AttentionDtype::float64 ? kAttentionPortable : wanted;
}

}  // namespace

std::span<const AttentionKernel* const> attention_kernels() {
  struct Choice {
    std::array<const AttentionKernel*, 3> kernels{};
    size_t count = 0;
  };
  static const Choice choice = [] {
    Choice c;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bf16"))
      c.kernels[c.count++] = &kAttentionAvx512;
    if (avx2) c.kernels[c.count++] = &kAttentionAvx2;
#endif
    c.kernels[c.count++] = &kAttentionPortable;
    return c;
  }();
  return {choice.kernels.data(), choice.count};
}

int64_t attention_workspace_bytes(const AttentionShape& shape, at::ScalarType dtype) {
  check_shape(shape);
  const int64_t slots = std::min<int64_t>(at::get_num_threads(), shape.batch * shape.num_kv_heads);
  return slots * scratch_per_thread(shape, kernel_dtype(dtype)) + kAlignment;
}

void attention_forward_with(const AttentionKernel& kernel, const at::Tensor& out, const at::Tensor& lse,
                            const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& workspace) {
  check_shape(shape);
  const at::ScalarType dtype = qkv.scalar_type();
  const AttentionDtype kind = kernel_dtype(dtype);
  const int64_t tokens = shape.batch * shape.sequence;
  check_tensor("attention", "qkv", qkv, {tokens, row_length(shape)}, dtype);
  check_tensor("attention", "out", out, {tokens, shape.num_heads * shape.head_dim}, dtype);
  check_tensor("attention", "lse", lse, {shape.batch, shape.num_heads, shape.sequence}, statistics_dtype(dtype));
  AttentionCall call = make_call(shape);
  call.qkv = qkv.const_data_ptr(), call.out = out.data_ptr(), call.lse = lse.data_ptr();
  run_jobs(kernel_for(kernel, kind).forward[static_cast<int>(kind)], call, kind, shape, workspace);
}

void attention_backward_with(const AttentionKernel& kernel, const at::Tensor& dqkv, const at::Tensor& d_out,
                             const at::Tensor& out, const at::Tensor& lse, const at::Tensor& qkv,
                             const AttentionShape& shape, const at::Tensor& workspace) {
  check_shape(shape);
  const at::ScalarType dtype = qkv.scalar_type();
  const AttentionDtype kind = kernel_dtype(dtype);
  const int64_t tokens = shape.batch * shape.sequence;
  check_tensor("attention", "qkv", qkv, {tokens, row_length(shape)}, dtype);
  check_tensor("attention", "dqkv", dqkv, {tokens, row_length(shape)}, dtype);
  check_tensor("attention", "d_out", d_out, {tokens, shape.num_heads * shape.head_dim}, dtype);
  check_tensor("attention", "out", out, {tokens, shape.num_heads * shape.head_dim}, dtype);
  check_tensor("attention", "lse", lse, {shape.batch, shape.num_heads, shape.sequence}, statistics_dtype(dtype));
  if (dqkv.const_data_ptr() == qkv.const_data_ptr())
    throw ShapeError("attention: dqkv is qkv itself; the backward reads qkv to its end, give it another tensor");
  AttentionCall call = make_call(shape);
  call.qkv = qkv.const_data_ptr(), call.out = out.data_ptr(), call.lse = lse.data_ptr();
  call.d_out = d_out.const_data_ptr(), call.dqkv = dqkv.data_ptr();
  run_jobs(kernel_for(kernel, kind).backward[static_cast<int>(kind)], call, kind, shape, workspace);
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
