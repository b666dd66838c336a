#include "trireme/ops/attention/run.h"
#include "trireme/ops/announce.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/base/processor.h"
#include "trireme/ops/attention/attention.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

constexpr int64_t kAlignment = 64;

int64_t slice_bytes(const AttentionCall& call, AttentionDtype dtype) {
  return (attention_scratch_bytes(call.keys, call.head_dim, dtype) + 63) / 64 * 64;
}

/// Most parts that a job can be cut into: enough for many threads, and none without work.
int64_t most_parts(int64_t num_keys) { return (num_keys + kAttentionKeyBlock - 1) / kAttentionKeyBlock; }

/// Parts per job, so that `slots` have about the same to do.
int64_t parts_of(const AttentionCall& call, int64_t jobs, int64_t slots, AttentionDirection direction) {
  const int64_t most = most_parts(std::min(call.keys, call.queries));
  if (direction == AttentionDirection::backward) return std::clamp<int64_t>(slots / jobs, 1, most);
  // With many jobs the last round matters little, and every part packs its own keys.
  return jobs >= 4 * slots ? 1 : std::min(slots / std::gcd(slots, jobs), most);
}

AttentionCall checked_call(std::string_view operation, const AttentionBlockShape& shape,
                           std::initializer_list<std::pair<const char*, int64_t>> sizes, int64_t window) {
  for (const auto& [name, value] : sizes)
    if (value < 1) throw ShapeError(fmt::format("{}: {} is {}, it must be at least 1", operation, name, value));
  if (shape.num_heads % shape.num_kv_heads != 0)
    throw ShapeError(
        fmt::format("{}: num_kv_heads={} does not divide num_heads={}; each key/value head serves the "
                    "same number of query heads",
                    operation, shape.num_kv_heads, shape.num_heads));
  if (window < 0)
    throw ShapeError(fmt::format("{}: window is {}, it must be the number of keys that a query sees, or 0 for all",
                                 operation, window));
  if (!(shape.softcap >= 0 && std::isfinite(shape.softcap)))
    throw ShapeError(fmt::format("{}: softcap is {:f}, it must be the bound of the scores, or 0 for none", operation,
                                 shape.softcap));
  if (!(shape.dropout.p >= 0 && shape.dropout.p < 1))
    throw ShapeError(fmt::format("{}: dropout is {}, it must be at least 0 and below 1", operation, shape.dropout.p));
  return {.batch = shape.batch,
          .queries = shape.queries,
          .keys = shape.keys,
          .num_heads = shape.num_heads,
          .num_kv_heads = shape.num_kv_heads,
          .head_dim = shape.head_dim,
          .scale = shape.scale != 0 ? shape.scale : 1 / std::sqrt(static_cast<double>(shape.head_dim)),
          .softcap = shape.softcap};
}

}  // namespace

std::span<const AttentionKernel* const> attention_kernels() {
  static const std::vector<const AttentionKernel*> kernels = [] {
    std::vector<const AttentionKernel*> able;
#if defined(__x86_64__)
    const base::Processor& has = base::processor();
    if (has.avx512_bf16) able.push_back(&kAttentionAvx512Bf16);
    if (has.avx512) able.push_back(&kAttentionAvx512);
    if (has.avx2) able.push_back(&kAttentionAvx2);
#endif
    able.push_back(&kAttentionPortable);
    return able;
  }();
  return kernels;
}

const AttentionKernel& attention_kernel(AttentionDtype dtype, const AttentionKernel* wanted) {
  if (dtype == AttentionDtype::float64) return kAttentionPortable;
  return wanted != nullptr ? *wanted : *attention_kernels().front();
}

AttentionDtype attention_dtype(std::string_view operation, at::ScalarType dtype) {
  if (dtype == at::kDouble) return AttentionDtype::float64;
  if (dtype == at::kFloat) return AttentionDtype::float32;
  if (dtype == at::kBFloat16) return AttentionDtype::bfloat16;
  if (dtype == at::kHalf) return AttentionDtype::float16;
  throw ShapeError(
      fmt::format("{}: {} has no kernel; use float64, float32, bfloat16 or float16", operation, c10::toString(dtype)));
}

AttentionCall checked_call(std::string_view operation, const AttentionShape& shape) {
  return checked_call(operation,
                      {shape.batch, shape.sequence, shape.sequence, shape.num_heads, shape.num_kv_heads, shape.head_dim,
                       shape.scale, shape.softcap, shape.dropout},
                      {{"batch", shape.batch},
                       {"sequence", shape.sequence},
                       {"num_heads", shape.num_heads},
                       {"num_kv_heads", shape.num_kv_heads},
                       {"head_dim", shape.head_dim}},
                      shape.window);
}

AttentionCall checked_call(std::string_view operation, const AttentionBlockShape& shape) {
  return checked_call(operation, shape,
                      {{"batch", shape.batch},
                       {"queries", shape.queries},
                       {"keys", shape.keys},
                       {"num_heads", shape.num_heads},
                       {"num_kv_heads", shape.num_kv_heads},
                       {"head_dim", shape.head_dim}},
                      0);
}

AttentionDrops checked_drops(std::string_view operation, const AttentionDropout& dropout, int64_t batch,
                             int64_t queries) {
  if (dropout.p == 0) return {};
  const at::Tensor& keys = dropout.keys;
  const bool fits =
      keys.defined() && keys.is_cpu() && keys.scalar_type() == at::kInt && keys.dim() > 0 && keys.stride(-1) == 1 &&
      (keys.sizes() == at::IntArrayRef({batch * queries}) || keys.sizes() == at::IntArrayRef({batch, queries}));
  if (!fits)
    throw ShapeError(fmt::format("{}: dropout needs keys on the CPU, int32 of [{}] or [{}, {}]", operation,
                                 batch * queries, batch, queries));
  return {.p = dropout.p,
          .keys = reinterpret_cast<const uint32_t*>(keys.data_ptr<int32_t>()),
          .batch = keys.dim() == 2 ? keys.stride(0) : queries,
          .first_head = dropout.first_head,
          .first_key = dropout.first_key,
          .split = dropout.split,
          .later_key = dropout.later_key};
}

int64_t attention_workspace_for(const AttentionCall& call, AttentionDtype dtype) {
  const int64_t most_slots = call.batch * call.num_kv_heads * most_parts(call.keys);
  return std::min<int64_t>(at::get_num_threads(), most_slots) * slice_bytes(call, dtype) + kAlignment;
}

bool on_one_gpu(std::string_view operation, std::initializer_list<NamedTensor> tensors) {
  const auto& [first_name, first] = *tensors.begin();
  for (const auto& [name, tensor] : tensors)
    if (tensor.defined() && tensor.device() != first.device())
      throw ShapeError(fmt::format("{}: {} is on {} and {} on {}; all tensors of a call must be on one device",
                                   operation, name, tensor.device().str(), first_name, first.device().str()));
  return first.is_cuda();
}

namespace {

// Pairs of a query and a key that it sees, in one batch row and head; documents are not looked at.
double visible_pairs(const AttentionCall& c) {
  if (!c.causal || c.whole_documents) return double(c.queries) * double(c.keys);
  const auto triangle = [](int64_t n) { return double(n) * double(n + 1) / 2; };
  const double all = triangle(c.first_query + c.queries) - triangle(c.first_query);
  if (c.window == 0) return all;
  const int64_t beyond = std::max<int64_t>(0, c.first_query + c.queries - c.window);
  return all - triangle(beyond) + triangle(std::max<int64_t>(0, c.first_query - c.window));
}

Operation attention_operation(AttentionDirection direction, const AttentionCall& c, at::ScalarType dtype) {
  const bool forward = direction == AttentionDirection::forward;
  const int64_t width = c.num_heads * c.head_dim;
  const double rows = double(c.batch) * double(c.queries), keys = double(c.batch) * double(c.keys);
  const auto element = double(c10::elementSize(dtype));
  return {.name = forward ? "attention_forward" : "attention_backward",
          .dtype = dtype,
          .m = c.queries,
          .n = width * c.batch,
          .k = c.head_dim,
          .flops = (forward ? 4 : 10) * double(c.batch * c.num_heads) * visible_pairs(c) * double(c.head_dim),
          .bytes = element * (forward ? 2 : 4) * (rows * double(width) + keys * double(c.num_kv_heads * c.head_dim))};
}

}  // namespace

void run_attention(std::string_view operation, AttentionDirection direction, const AttentionCall& call,
                   AttentionDtype dtype, std::initializer_list<NamedTensor> tensors, const at::Tensor& workspace,
                   const AttentionKernel* kernel) {
  const Announced announced(
      [&] { return attention_operation(direction, call, tensors.begin()->tensor.scalar_type()); });
  if (announced.skipped()) return;
  const base::Metered metered(base::Activity::attention);
  const bool forward = direction == AttentionDirection::forward;
  if (on_one_gpu(operation, tensors)) {
    if (call.drops.p > 0)
      throw ShapeError(fmt::format("{}: dropout has kernels for processors only; move the tensors there", operation));
    AttentionCall with_workspace = call;
    if (workspace.defined() && workspace.is_cuda())
      with_workspace.workspace = workspace.data_ptr(), with_workspace.workspace_bytes = int64_t(workspace.nbytes());
    return forward ? cuda_kernels().attention_forward(with_workspace, dtype)
                   : cuda_kernels().attention_backward(with_workspace, dtype);
  }
  const int64_t jobs = call.batch * call.num_kv_heads, slice = slice_bytes(call, dtype);
  const int64_t available = workspace.defined() ? static_cast<int64_t>(workspace.nbytes()) : 0;
  if (available < slice + kAlignment)
    throw ShapeError(
        fmt::format("{0}: the workspace has {1} bytes and needs at least {2}; allocate {0}_workspace_bytes()",
                    operation, available, slice + kAlignment));
  if (!workspace.is_contiguous() || !workspace.is_cpu())
    throw ShapeError(fmt::format("{}: the workspace must be a contiguous CPU tensor", operation));
  const auto base = reinterpret_cast<uintptr_t>(workspace.data_ptr());
  char* const aligned = static_cast<char*>(workspace.data_ptr()) + ((kAlignment - base % kAlignment) % kAlignment);

  const AttentionKernel& runs = attention_kernel(dtype, kernel);
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
