// Kernels of optim/optimizer.cpp, chosen for the processor at run time.
#pragma once

#include <cstdint>
#include <utility>

#include "trireme/ops/storage.h"
#include "trireme/optim/optimizer.h"

namespace trireme::optim {

struct UpdateArguments {
  Rule rule;
  ops::Storage dtype;  ///< of master, state and gradient: float32 or float64
  void* master;
  void* state[2];      ///< null: the rule keeps fewer tensors
  const void* gradient;
  void* compute_bf16;  ///< null: not written
  void* compute_same;  ///< null: not written; master's dtype
  double gradient_scale, beta1, beta2, eps, momentum;
  bool nesterov;
  double keep;         ///< factor of the weights: 1 - lr weight_decay, or 1
  double l2;           ///< weight decay as a part of the gradient (lamb: of the step), or 0
  double step_size;    ///< lr; for adam and adamw divided by 1 - beta1^step
  double root_bias2;   ///< sqrt(1 - beta2^step)
};
void update_elements(const UpdateArguments& arguments, int64_t first, int64_t last);

/// lamb_directions() for blocks number `blocks` of elements [begin, end).
void lamb_blocks(const UpdateArguments& arguments, int64_t begin, int64_t end, std::pair<int64_t, int64_t> blocks,
                 int64_t block, double* partials);

struct NormArguments {
  ops::Storage dtype;
  const void* gradient;
  int64_t count;
  int64_t block;  ///< elements per partial, a multiple of 32
  double* partials;
};
void squared_norm_blocks(const NormArguments& arguments, int64_t first, int64_t last);

/// The kernels on an NVIDIA GPU, exported by the library trireme_cuda (base/shared_library.h). Pointers are to device
/// memory; kernels run on the current CUDA stream. Numerics are those of the CPU's kernels.
struct CudaOptimizer {
  /// Elements [begin, end) of the span.
  void (*update)(const UpdateArguments& arguments, int64_t begin, int64_t end);
  /// All blocks of the gradient; the bits of a block are the CPU's: 32 lanes in float64, added pairwise.
  void (*squared_norm)(const NormArguments& arguments);
  /// Adds `count` terms to the limbs of an ExactSum, [ExactSum::kLimbs] on the device. At most 2^30 terms between two
  /// normalisations.
  void (*add_exactly)(const double* terms, int64_t count, int64_t* limbs);
};

}  // namespace trireme::optim
