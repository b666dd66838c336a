// Kernels of optim/adamw.cpp, chosen for the processor at run time.
#pragma once

#include <cstdint>

#include "trireme/ops/storage.h"

namespace trireme::optim {

struct AdamWArguments {
  ops::Storage dtype;  ///< of master, moments and gradient: float32 or float64
  void* master;
  void* exp_avg;
  void* exp_avg_sq;
  const void* gradient;
  void* compute_bf16;  ///< null: not written
  void* compute_same;  ///< null: not written; master's dtype
  double gradient_scale, beta1, beta2, eps;
  double keep;          ///< 1 - lr weight_decay, or 1
  double step_size;     ///< lr / (1 - beta1^step)
  double root_bias2;    ///< sqrt(1 - beta2^step)
};
void adamw_elements(const AdamWArguments& arguments, int64_t first, int64_t last);

struct NormArguments {
  ops::Storage dtype;
  const void* gradient;
  int64_t count;
  int64_t block;  ///< elements per partial, a multiple of 32
  double* partials;
};
void squared_norm_blocks(const NormArguments& arguments, int64_t first, int64_t last);

}  // namespace trireme::optim
