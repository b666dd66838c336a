#include "trireme/ops/attention_run.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/base/processor.h"
#include "trireme/ops/attention.h"
#include "trireme/ops/cuda_kernels.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

constexpr int64_t kAlignment = 64;

int64_t slice_bytes(int64_t num_keys, int64_t head_dim, AttentionDtype dtype) {
  return (attention_scratch_bytes(num_keys, head_dim, dtype) + 63) / 64 * 64;
}

/// Pieces that a job can be cut into: enough for many threads, and none without work.
int64_t most_parts(int64_t num_keys) { return (num_keys + kAttentionKeyBlock - 1) / kAttentionKeyBlock; }

/// Parts per job, so that `slots` have about the same to do.
int64_t parts_of(const AttentionCall& call, int64_t jobs, int64_t slots, AttentionDirection direction) {
  const int64_t most = most_parts(std::min(call.keys, call.queries));
  if (direction == AttentionDirection::backward) return std::clamp<int64_t>(slots / jobs, 1, most);
  // With many jobs the last round matters little, and every part packs keys of its own.
  return jobs >= 4 * slots ? 1 : std::min(slots / std::gcd(slots, jobs), most);
}

}  // namespace

std::span<const AttentionKernel* const> attention_kernels() {
  struct Choice {
    std::array<const AttentionKernel*, 4> kernels{};
    size_t count = 0;
  };
  static const Choice choice = [] {
    Choice c;
#if defined(__x86_64__)
    const base::Processor& has = base::processor();
    if (has.avx512_bf16) c.kernels[c.count++] = &kAttentionAvx512Bf16;
    if (has.avx512) c.kernels[c.count++] = &kAttentionAvx512;
    if (has.avx2) c.kernels[c.count++] = &kAttentionAvx2;
#endif
    c.kernels[c.count++] = &kAttentionPortable;
    return c;
  }();
  return {choice.kernels.data(), choice.count};
}

AttentionDtype attention_dtype(std::string_view operation, at::ScalarType dtype) {
  if (dtype == at::kDouble) return AttentionDtype::float64;
  if (dtype == at::kFloat) return AttentionDtype::float32;
  if (dtype == at::kBFloat16) return AttentionDtype::bfloat16;
  throw ShapeError(std::string(operation) + ": " + c10::toString(dtype) +
                   " has no kernel; use float64, float32 or bfloat16");
}

void check_attention_sizes(std::string_view operation, std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  for (const auto& [name, value] : sizes)
    if (value < 1)
      throw ShapeError(std::string(operation) + ": " + name + " is " + std::to_string(value) +
                       ", it must be at least 1");
}

void check_attention_heads(std::string_view operation, int64_t num_heads, int64_t num_kv_heads) {
  if (num_heads % num_kv_heads != 0)
    throw ShapeError(std::string(operation) + ": num_kv_heads=" + std::to_string(num_kv_heads) +
                     " does not divide num_heads=" + std::to_string(num_heads) +
                     "; each key/value head serves the same number of query heads");
}

void check_attention_window(std::string_view operation, int64_t window) {
  if (window < 0)
    throw ShapeError(std::string(operation) + ": window is " + std::to_string(window) +
                     ", it must be the number of keys that a query sees, or 0 for all");
}

void check_attention_softcap(std::string_view operation, double softcap) {
  if (!(softcap >= 0 && std::isfinite(softcap)))
    throw ShapeError(std::string(operation) + ": softcap is " + std::to_string(softcap) +
                     ", it must be what no score exceeds, or 0 for none");
}

double attention_scale(double scale, int64_t head_dim) {
  return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(head_dim));
}

int64_t attention_scratch_of(const AttentionJobs& jobs, AttentionDtype dtype) {
  const int64_t slots = std::min<int64_t>(at::get_num_threads(), jobs.jobs * most_parts(jobs.num_keys));
  return slots * slice_bytes(jobs.num_keys, jobs.head_dim, dtype) + kAlignment;
}

bool on_one_gpu(std::string_view operation, std::initializer_list<NamedTensor> tensors) {
  const auto& [first_name, first] = *tensors.begin();
  for (const auto& [name, tensor] : tensors)
    if (tensor.defined() && tensor.device() != first.device())
      throw ShapeError(std::string(operation) + ": " + name + " is on " + tensor.device().str() + " and " + first_name +
                       " on " + first.device().str() + "; all tensors of a call must be on one device");
  return first.is_cuda();
}

void run_attention_cuda(AttentionDirection direction, const AttentionCall& call, AttentionDtype dtype) {
  const base::Metered metered(base::Activity::attention);
  const CudaKernels& kernels = cuda_kernels();
  (direction == AttentionDirection::forward ? kernels.attention_forward : kernels.attention_backward)(call, dtype);
}

void run_attention(std::string_view operation, const AttentionKernel& kernel, AttentionDirection direction,
                   const AttentionCall& call, AttentionDtype dtype, const at::Tensor& workspace) {
  const base::Metered metered(base::Activity::attention);
  const int64_t jobs = call.batch * call.num_kv_heads, slice = slice_bytes(call.keys, call.head_dim, dtype);
  const int64_t available = workspace.defined() ? static_cast<int64_t>(workspace.nbytes()) : 0;
  if (available < slice + kAlignment)
    throw ShapeError(std::string(operation) + ": the workspace has " + std::to_string(available) +
                     " bytes and needs at least " + std::to_string(slice + kAlignment) + "; allocate " +
                     std::string(operation) + "_workspace_bytes()");
  if (!workspace.is_contiguous() || !workspace.is_cpu())
    throw ShapeError(std::string(operation) + ": the workspace must be a contiguous CPU tensor");
  const auto base = reinterpret_cast<uintptr_t>(workspace.data_ptr());
  char* const aligned = static_cast<char*>(workspace.data_ptr()) + ((kAlignment - base % kAlignment) % kAlignment);

  const AttentionKernel& runs = dtype == AttentionDtype::float64 ? kAttentionPortable : kernel;
  const bool forward = direction == AttentionDirection::forward;
  const AttentionPass run = (forward ? runs.forward : runs.backward)[static_cast<int>(dtype)];
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), (available - kAlignment) / slice);
  const int64_t parts = parts_of(call, jobs, threads, direction), tasks = jobs * parts;
  const int64_t slots = std::min(threads, tasks);
  parallel_rows(slots, 1, [&](int64_t first, int64_t last) {
    for (int64_t slot = first; slot < last; ++slot)
      for (int64_t task = slot; task < tasks; task += slots)
        run(call, {.job = task / parts, .part = task % parts, .parts = parts}, aligned + slot * slice);
  });
}

}  // namespace trireme::ops
