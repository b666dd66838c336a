// The common part of attention on packed rows (attention.cpp), on blocks of keys (block.cpp) and on a cache
// (paged.cpp): the checks of a shape, the scratch, and how tasks are divided among threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string_view>

#include "trireme/ops/attention/kernels.h"
#include "trireme/ops/ops.h"

namespace trireme::ops {

/// The kernels' name for a compute dtype; ShapeError if they have none.
AttentionDtype attention_dtype(std::string_view operation, at::ScalarType dtype);

/// A call with the numbers of `shape`, and the default scale if shape.scale is 0. Tensors, mask and window are not set.
/// Errors    ShapeError naming the first number that does not fit
AttentionCall checked_call(std::string_view operation, const AttentionShape& shape);
AttentionCall checked_call(std::string_view operation, const AttentionBlockShape& shape);

/// The drops of a call with `queries` queries in each of `batch` rows.
/// Errors    ShapeError: p outside [0, 1), or keys that do not fit
AttentionDrops checked_drops(std::string_view operation, const AttentionDropout& dropout, int64_t batch,
                             int64_t queries);

/// Bytes of workspace that let run_attention use every thread.
int64_t attention_workspace_for(const AttentionCall& call, AttentionDtype dtype);

enum class AttentionDirection { forward, backward };

struct NamedTensor {
  const char* name;
  const at::Tensor& tensor;
};
/// Whether the tensors are on a GPU; ShapeError naming the first that is not on the device of the first one.
bool on_one_gpu(std::string_view operation, std::initializer_list<NamedTensor> tensors);

/// Runs `call` where its `tensors` are. On a GPU a workspace that is too small is replaced by memory of LibTorch's
/// allocator.
///
/// On the CPU every slot owns a slice of the workspace and runs every n-th task, where n is the number of slots. There
/// are as many slots as threads, or fewer if the workspace has fewer slices: a workspace planned for fewer threads only
/// makes the call slower. If slots would be idle, jobs are cut into parts: in the forward always, in the backward if
/// every job gets at least two parts (each block is then computed twice). `kernel`: null for the best one; float64
/// always runs in the portable kernel.
///
/// Errors    ShapeError for tensors on several devices, or a workspace of less than one slice
void run_attention(std::string_view operation, AttentionDirection direction, const AttentionCall& call,
                   AttentionDtype dtype, std::initializer_list<NamedTensor> tensors, const at::Tensor& workspace,
                   const AttentionKernel* kernel);

}  // namespace trireme::ops
