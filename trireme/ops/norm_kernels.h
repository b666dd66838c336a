// Row kernels of ops/norm.cpp, chosen for the processor at run time. Pointers are to whole tensors; rows
// first..last-1 are done. Null pointers stand for what is absent.
#pragma once

#include <cstdint>
#include <cstring>

#include "trireme/ops/storage.h"

namespace trireme::ops {

struct NormForward {
  Storage dtype;
  int64_t width;
  double eps;
  double weight_offset;  ///< added to w; RMSNorm only, as below
  void* sum;  ///< null: normalise x itself
  void* y;
  void* mean;
  void* rstd;
  const void* x;
  const void* residual;
  const void* w;
  const void* b;
  bool past_caches = false;  ///< y and sum, as ops/past_caches.h says
  void* kept = nullptr;  ///< then, with a sum: two rows of it stay here until they are normalised
};
void rms_norm_forward_rows(const NormForward& arguments, int64_t first, int64_t last);
void layer_norm_forward_rows(const NormForward& arguments, int64_t first, int64_t last);

struct NormBackward {
  Storage dtype;
  int64_t width;
  double weight_offset;
  void* dx;
  void* y;
  const void* dy;
  const void* x;
  const void* w;
  const void* b;
  const void* mean;
  const void* rstd;
  const void* d_residual;  ///< null: nothing is added
  void* dw_sum = nullptr;  ///< [width] of the wide type: these rows' gradients are added
  void* db_sum = nullptr;
  bool past_caches = false;  ///< dx and y
};
void rms_norm_backward_rows(const NormBackward& arguments, int64_t first, int64_t last);
void layer_norm_backward_rows(const NormBackward& arguments, int64_t first, int64_t last);

}  // namespace trireme::ops
