// Row kernels of ops/norm/norm.cpp and head_norm.cpp, chosen for the processor at run time. Pointers are to whole
// tensors; rows first..last-1 are computed. Tensors that do not exist are null.
#pragma once

#include <cstdint>

#include "trireme/ops/storage.h"

namespace trireme::ops {

struct NormForward {
  Storage dtype;
  int64_t width;
  double eps;
  double weight_offset;  ///< added to w; RMSNorm only, as below
  void* sum;  ///< null: normalise x itself
  void *y, *mean, *rstd;
  const void *x, *residual, *w, *b;
  bool past_caches = false;  ///< y and sum, as ops/simd/past_caches.h says
  void* kept = nullptr;  ///< with past_caches and a sum: keeps two rows of the sum until they are normalised
};
void rms_norm_forward_rows(const NormForward& arguments, int64_t first, int64_t last);
void layer_norm_forward_rows(const NormForward& arguments, int64_t first, int64_t last);

struct NormBackward {
  Storage dtype;
  int64_t width;
  double weight_offset;
  void *dx, *y;
  const void *dy, *x, *w, *b, *mean, *rstd;
  const void* d_residual;  ///< null: nothing is added
  void *dw_sum = nullptr, *db_sum = nullptr;  ///< [width] of the wide type: these rows' gradients are added
  bool past_caches = false;  ///< dx and y
};
void rms_norm_backward_rows(const NormBackward& arguments, int64_t first, int64_t last);
void layer_norm_backward_rows(const NormBackward& arguments, int64_t first, int64_t last);

/// A row is one head after another: q heads, then k heads.
struct HeadNorm {
  Storage dtype;
  int64_t row_width;  ///< of qkv
  int64_t num_heads, num_kv_heads, head_dim;
  double eps, weight_offset;
  void* qkv;  ///< backward: its gradient
  void* raw;  ///< [T, (H+K) d]; backward: only read; null: the forward keeps nothing
  void* rstd;  ///< [T, H+K]; backward: only read
  const void *w_q, *w_k;
  void *dw_q = nullptr, *dw_k = nullptr;  ///< backward: [d] of the wide type, to which these rows' gradients are added
  bool past_caches = false;  ///< raw, forward
};
void head_norm_forward_rows(const HeadNorm& arguments, int64_t first, int64_t last);
void head_norm_backward_rows(const HeadNorm& arguments, int64_t first, int64_t last);

}  // namespace trireme::ops
