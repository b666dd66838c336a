// Row kernels of ops/head_norm.cpp, chosen for the processor at run time. Pointers are to whole tensors; rows
// first..last-1 are done, each of which is one head after another: q heads, then k heads.
#pragma once

#include <cstdint>

#include "trireme/ops/storage.h"

namespace trireme::ops {

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
