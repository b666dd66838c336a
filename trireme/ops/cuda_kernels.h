// The kernels of operations on an NVIDIA GPU: what the library trireme_cuda exports (base/cuda_library.h). An operation
// whose tensors lie on the device checks them as on the CPU, fills in the same arguments, with device pointers, and
// calls the kernel here in place of the CPU's row kernels.
//
// A kernel does all `rows` on the current CUDA stream and returns when it is launched. Sums over rows and scratch are
// its own affair: scratch comes from LibTorch's caching allocator. Numerics are those of the CPU's kernels: arithmetic
// in the wide type, one rounding; sums in an order that the sizes alone decide, so that bits repeat. The contents of
// ids, targets, positions and starts are not checked here: the engine does, before it copies them to the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/ops/activation_kernels.h"
#include "trireme/ops/attention_kernel.h"
#include "trireme/ops/cross_entropy_kernels.h"
#include "trireme/ops/cross_entropy_shard_kernels.h"
#include "trireme/ops/elementwise_kernels.h"
#include "trireme/ops/gradient.h"
#include "trireme/ops/head_norm_kernels.h"
#include "trireme/ops/norm_kernels.h"

namespace trireme::ops {

/// Where the gradient of a weight that all rows share goes; null: none is wanted.
struct CudaGradient {
  Storage dtype;  ///< of `to`: the compute dtype or the wide type
  void* to;
  bool accumulate;  ///< added to what lies there, in the wide type, rounded once
};

/// The gradient of a table that rows were looked up in.
struct CudaGatherSum {
  Storage dtype;  ///< of rows
  int64_t width;
  const void* rows;  ///< dy [num_tokens, width]
  const int64_t* ids;  ///< [num_tokens], negative: left out; null: t % sequence
  int64_t num_tokens;
  int64_t sequence;
  int64_t* order;  ///< [num_tokens] scratch
  int64_t num_rows;  ///< of the table
  /// Row v = scale times the sum of the rows with id v in order of t. Without `accumulate` every row of the table is
  /// written, with it those of no id stay as they are.
  CudaGradient to;
  double scale;
};

/// Partial results of the loss over a vocabulary that ranks divide; all [rows] on the device.
struct CudaShardLoss {
  Storage dtype;  ///< of the three: a wide type
  const void *row_max, *sum_exp, *target_logit;
  const int64_t* targets;
  double* loss_sum;  ///< [1]: the rows' losses are added
};

struct CudaKernels {
  // activation_cuda.cu
  void (*gated_forward)(const GatedArguments& arguments, int64_t rows);
  void (*gated_backward)(const GatedArguments& arguments, int64_t rows);
  void (*gelu_forward)(const GeluArguments& arguments, int64_t rows);
  void (*gelu_backward)(const GeluArguments& arguments, int64_t rows);
  void (*softcap)(const SoftcapArguments& arguments, int64_t rows);

  // norm_cuda.cu, head_norm_cuda.cu; dw_sum, db_sum, dw_q and dw_k of the arguments are not read
  void (*rms_norm_forward)(const NormForward& arguments, int64_t rows);
  void (*layer_norm_forward)(const NormForward& arguments, int64_t rows);
  void (*rms_norm_backward)(const NormBackward& arguments, int64_t rows, const CudaGradient& dw);
  void (*layer_norm_backward)(const NormBackward& arguments, int64_t rows, const CudaGradient& dw,
                              const CudaGradient& db);
  void (*head_norm_forward)(const HeadNorm& arguments, int64_t rows);
  void (*head_norm_backward)(const HeadNorm& arguments, int64_t rows, const CudaGradient& dw_q,
                             const CudaGradient& dw_k);

  // rows_cuda.cu; `sum` of the arguments is not read
  void (*add)(const AddArguments& arguments, int64_t rows);
  void (*column_sum)(const ColumnSum& arguments, int64_t rows, const CudaGradient& to);
  void (*rotary)(const RotaryArguments& arguments, int64_t rows);

  // embedding_cuda.cu
  void (*gather)(const Gather& arguments, int64_t rows);
  void (*gather_sum)(const CudaGatherSum& arguments);

  // cross_entropy_cuda.cu. `losses` is not read: the rows' losses are summed in order of rows, in float64, and the sum
  // is added to *loss_sum on the device
  void (*softmax_loss)(const SoftmaxLoss& arguments, int64_t rows, double* loss_sum);
  void (*shard_max)(const VocabularyShard& arguments, int64_t rows);
  void (*shard_sum)(const VocabularyShard& arguments, int64_t rows);
  void (*shard_gradient)(const VocabularyShard& arguments, int64_t rows);
  void (*shard_loss)(const CudaShardLoss& arguments, int64_t rows);

  // products_cuda.cpp: as ops::multiply, whose checks have passed
  void (*multiply)(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate);

  // attention_cuda.cpp: a whole call, as the CPU's kernels do it in tasks
  void (*attention_forward)(const AttentionCall& call, AttentionDtype dtype);
  void (*attention_backward)(const AttentionCall& call, AttentionDtype dtype);
  void (*allow_flash_attention)(bool allowed);  ///< a test switches LibTorch's kernels off to see ours run

  // cuda_table.cpp
  void (*synchronize)();  ///< waits for all that was launched on the device; throws Error for what failed there
  int64_t (*peak_bytes)();  ///< most that LibTorch's caching allocator has held of the current device
};

/// Opened at the first call. Errors: UsageError as base::cuda_symbol
const CudaKernels& cuda_kernels();

inline CudaGradient cuda_gradient(const Gradient& gradient) {
  return {storage_of(gradient.to.scalar_type()), gradient.to.mutable_data_ptr(), gradient.accumulate};
}

}  // namespace trireme::ops
