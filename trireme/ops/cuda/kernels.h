// The kernels of operations on an NVIDIA GPU, exported by the library trireme_cuda (base/shared_library.h). For tensors
// on the device, an operation checks them as on the CPU, fills in the same arguments with device pointers, and calls a
// kernel from here instead of the CPU's row kernels.
//
// A kernel processes all `rows` on the current CUDA stream and returns after the launch. It takes care of sums over
// rows and of scratch, which comes from LibTorch's caching allocator. Numerics are those of the CPU's kernels:
// arithmetic in the wide type, one rounding, and an order of sums that depends on the sizes alone, so that bits repeat.
// The values of ids, targets, positions and starts are not checked here: the engine checks them before it copies them
// to the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/shared_library.h"
#include "trireme/ops/attention/kernels.h"
#include "trireme/ops/cuda/graph.h"
#include "trireme/ops/elementwise/activation_kernels.h"
#include "trireme/ops/elementwise/elementwise_kernels.h"
#include "trireme/ops/gradient.h"
#include "trireme/ops/loss/cross_entropy_kernels.h"
#include "trireme/ops/norm/norm_kernels.h"
#include "trireme/ops/products/float8.h"

namespace trireme::ops {

/// Where the gradient of a weight goes that all rows share. If `to` is null, it is not wanted.
struct CudaGradient {
  Storage dtype;  ///< of `to`: the compute dtype or the wide type
  void* to;
  bool accumulate;  ///< the gradient is added to the old value in the wide type, and rounded once
};

/// The gradient of a table of rows that ids select.
struct CudaGatherSum {
  Storage dtype;  ///< of rows
  int64_t width;
  const void* rows;  ///< dy [num_tokens, width]
  const int64_t* ids;  ///< [num_tokens]; tokens with negative ids are left out; null: token t has the id t % sequence
  int64_t num_tokens;
  int64_t sequence;
  int64_t* order;  ///< [num_tokens] scratch
  int64_t num_rows;  ///< of the table
  /// Row v = scale times the sum of the rows with id v in order of t. Without `accumulate` every row of the table is
  /// written; with it, rows whose id does not occur are unchanged.
  CudaGradient to;
  double scale;
};

/// Partial results of the loss over a vocabulary that is divided among ranks; all [rows] on the device.
struct CudaShardLoss {
  Storage dtype;  ///< of the next three: a wide type
  const void *row_max, *sum_exp, *target_logit;
  const int64_t* targets;
  double* loss_sum;  ///< [1]: the rows' losses are added
};

namespace cuda {

/// A copy between a GPU and page-locked memory of the host, beside what the thread launches.
struct Copy {
  virtual ~Copy() = default;
  virtual bool is_through() const = 0;  ///< whether the GPU has ended it; throws Error if it has failed
  virtual void lead() const = 0;  ///< what this thread launches from now on runs behind it; the host does not wait
};

/// Copies that run one after the other, on a stream of their own.
struct CopyStream {
  virtual ~CopyStream() = default;  ///< waits for its copies
  /// A copy that runs behind what this thread has launched so far. Both memories stay until it is through.
  virtual std::shared_ptr<Copy> post(void* to, const void* from, int64_t bytes) = 0;
};

/// All kernels. They are virtual because the program is linked without trireme_cuda and calls them through this table.
/// The comments name the files that define them.
struct Kernels {
  // activation_cuda.cu
  virtual void gated_forward(const GatedArguments& arguments, int64_t rows) const;
  virtual void gated_backward(const GatedArguments& arguments, int64_t rows) const;
  virtual void gelu_forward(const GeluArguments& arguments, int64_t rows) const;
  virtual void gelu_backward(const GeluArguments& arguments, int64_t rows) const;
  virtual void softcap(const SoftcapArguments& arguments, int64_t rows) const;

  // norm_cuda.cu, head_norm_cuda.cu; dw_sum, db_sum, dw_q and dw_k of the arguments are not read
  virtual void rms_norm_forward(const NormForward& arguments, int64_t rows) const;
  virtual void layer_norm_forward(const NormForward& arguments, int64_t rows) const;
  virtual void rms_norm_backward(const NormBackward& arguments, int64_t rows, const CudaGradient& dw) const;
  virtual void layer_norm_backward(const NormBackward& arguments, int64_t rows, const CudaGradient& dw,
                                   const CudaGradient& db) const;
  virtual void head_norm_forward(const HeadNorm& arguments, int64_t rows) const;
  virtual void head_norm_backward(const HeadNorm& arguments, int64_t rows, const CudaGradient& dw_q,
                                  const CudaGradient& dw_k) const;

  // elementwise/elementwise_cuda.cu; `sum` of the arguments is not read
  virtual void add(const AddArguments& arguments, int64_t rows) const;
  virtual void column_sum(const ColumnSum& arguments, int64_t rows, const CudaGradient& to) const;
  virtual void rotary(const RotaryArguments& arguments, int64_t rows) const;

  // embedding_cuda.cu
  virtual void gather(const Gather& arguments, int64_t rows) const;
  virtual void gather_sum(const CudaGatherSum& arguments) const;

  // cross_entropy_cuda.cu. `losses` is not read: the rows' losses are summed in order of rows, in float64, and the sum
  // is added to *loss_sum on the device
  virtual void softmax_loss(const SoftmaxLoss& arguments, int64_t rows, double* loss_sum) const;
  virtual void shard_max(const VocabularyShard& arguments, int64_t rows) const;
  virtual void shard_sum(const VocabularyShard& arguments, int64_t rows) const;
  virtual void shard_gradient(const VocabularyShard& arguments, int64_t rows) const;
  virtual void shard_loss(const CudaShardLoss& arguments, int64_t rows) const;

  // products_cuda.cpp: as ops::multiply, whose checks have passed
  virtual void multiply(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) const;
  /// As ops::multiply_onto; false if it cannot be done in one pass, and then nothing has run.
  virtual bool multiply_onto(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
                             const at::Tensor& addend) const;
  // float8_product_cuda.cpp: as ops::multiply_float8, whose checks have passed
  virtual void multiply_float8(const at::Tensor& c, const Float8Operand& a, const Float8Operand& b,
                               const at::Tensor& scratch, const at::Tensor& addend) const;

  // attention_cuda.cpp: a whole call, which the CPU's kernels do in tasks
  virtual void attention_forward(const AttentionCall& call, AttentionDtype dtype) const;
  virtual void attention_backward(const AttentionCall& call, AttentionDtype dtype) const;
  /// Which attention may run: cuDNN's, LibTorch's flash attention, our own. Tests forbid the first or both.
  virtual void allow_attention(bool cudnn, bool flash) const;
  /// Of this thread's calls from now on: whether sums may have an order that differs from run to run (default: no).
  virtual void allow_any_order(bool allowed) const;

  // cuda/library.cpp
  virtual void synchronize() const;  ///< waits for all launched work of the device; throws Error if some failed
  virtual int64_t peak_bytes() const;  ///< most that LibTorch's caching allocator has held of the current device
  virtual std::string device_name() const;  ///< "NVIDIA H100 80GB HBM3"
  virtual std::string device_bus_id() const;  ///< "0000:1B:00.0"
  virtual int64_t device_bytes() const;  ///< memory of the current device
  /// Page-locks memory of the host, so that copies from and to it run beside other work. Error if CUDA cannot.
  virtual void page_lock(void* data, int64_t bytes) const;
  virtual void page_unlock(void* data) const;
  virtual std::unique_ptr<CopyStream> copy_stream() const;
  virtual std::shared_ptr<GraphMaker> graph_maker() const;  ///< graph.cpp
  /// Notes when the GPU reaches this place among this thread's launches. The host does not wait.
  virtual void mark() const;
  /// Waits, and returns the seconds from each of this thread's marks to the next; forgets them.
  virtual std::vector<double> seconds_between_marks() const;
};

}  // namespace cuda

/// The table of kernels; the first call opens trireme_cuda. Errors: UsageError as base::cuda_symbol
inline const cuda::Kernels& cuda_kernels() {
  using Table = const cuda::Kernels& (*)();
  static const cuda::Kernels& table = reinterpret_cast<Table>(base::cuda_symbol("trireme_ops_cuda_kernels"))();
  return table;
}

inline CudaGradient cuda_gradient(const Gradient& gradient) {
  if (!gradient.defined()) return {};
  return {storage_of(gradient.to.scalar_type()), gradient.to.mutable_data_ptr(), gradient.accumulate};
}

}  // namespace trireme::ops
