// The optimizer's kernels on an NVIDIA GPU, exported by the library trireme_cuda (base/cuda_library.h). Pointers are to
// device memory; kernels run on the current CUDA stream. Numerics are those of the CPU's kernels.
#pragma once

#include "trireme/optim/optimizer_kernels.h"

namespace trireme::optim {

struct CudaOptimizer {
  /// Elements [begin, end) of the span.
  void (*update)(const UpdateArguments& arguments, int64_t begin, int64_t end);
  /// All blocks of the gradient; a block's bits are the CPU's: 32 lanes in float64, added pairwise.
  void (*squared_norm)(const NormArguments& arguments);
};

/// Opened at the first call. Errors: UsageError as base::cuda_symbol
const CudaOptimizer& cuda_optimizer();

}  // namespace trireme::optim
