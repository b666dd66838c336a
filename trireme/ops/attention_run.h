// What the two attentions share on the way to a kernel: attention.cpp (causal, packed rows) and attention_block.cpp
// (no mask, views). Checks name the operation; scratch and threads are handled once.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string_view>
#include <utility>

#include "trireme/ops/attention_kernel.h"

namespace trireme::ops {

/// The kernel's name for a compute dtype; ShapeError if it has none.
AttentionDtype attention_dtype(std::string_view operation, at::ScalarType dtype);

/// ShapeError naming the first size that is not at least 1.
void check_attention_sizes(std::string_view operation, std::initializer_list<std::pair<const char*, int64_t>> sizes);

/// ShapeError unless num_kv_heads divides num_heads.
void check_attention_heads(std::string_view operation, int64_t num_heads, int64_t num_kv_heads);

/// ShapeError unless `window` is 0 (no limit) or more.
void check_attention_window(std::string_view operation, int64_t window);

/// ShapeError unless `softcap` is 0 (none) or a positive number.
void check_attention_softcap(std::string_view operation, double softcap);

/// `scale`, or 1/sqrt(head_dim) where it is 0.
double attention_scale(double scale, int64_t head_dim);

struct AttentionJobs {
  int64_t jobs;  ///< batch * num_kv_heads
  int64_t num_keys;
  int64_t head_dim;
};
/// Bytes of workspace with which run_attention uses every thread.
int64_t attention_scratch_of(const AttentionJobs& jobs, AttentionDtype dtype);

enum class AttentionDirection { forward, backward };

struct NamedTensor {
  const char* name;
  const at::Tensor& tensor;
};
/// Whether the tensors lie on a GPU; ShapeError naming the first that does not lie where the first of them does.
bool on_one_gpu(std::string_view operation, std::initializer_list<NamedTensor> tensors);

/// Runs `call`, whose pointers are to device memory, on the GPU; no workspace is needed there.
void run_attention_cuda(AttentionDirection direction, const AttentionCall& call, AttentionDtype dtype);

/// Runs every job of `call`, its tasks dealt to slots; a slot owns a slice of the workspace. As many slots as there are
/// threads and slices: a workspace planned for fewer threads only makes the call slower. Where slots would idle, jobs
/// run in parts: forward always, backward if every job gets at least two (each block is then computed twice).
/// float64 runs in the portable kernel whatever is given.
/// Errors    ShapeError for a workspace of less than one slice
void run_attention(std::string_view operation, const AttentionKernel& kernel, AttentionDirection direction,
                   const AttentionCall& call, AttentionDtype dtype, const at::Tensor& workspace);

}  // namespace trireme::ops
