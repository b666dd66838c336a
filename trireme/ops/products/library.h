// Products by LibTorch, for what our own kernels do not support (products.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::ops {

/// Whether rows are contiguous, whether only the transpose's rows are, and whether one of the two is true.
inline bool has_rows(const at::Tensor& x) { return x.stride(1) == 1 || x.size(1) == 1; }
inline bool is_transposed(const at::Tensor& x) { return x.stride(1) != 1 && x.stride(0) == 1; }
inline bool is_matrix(const at::Tensor& x) { return has_rows(x) || is_transposed(x); }

/// multiply() (products.h) by LibTorch; multiply() has checked the arguments. A bfloat16 product with a float32 result
/// uses MKL (below), or multiply_in_float32 if MKL does not support it or is missing (ARM). So its sums are never
/// rounded to bfloat16. If the processor has no instruction that multiplies bfloat16, LibTorch's bfloat16 product is
/// far slower than its float32 product (40 times with AVX2): then this calls multiply_in_float32, too. float16 always
/// does.
void multiply_by_library(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate);

/// The same for bfloat16 a and b and float32 c by MKL, on matrix units if there are any. Sums are in float32 and never
/// rounded. No function of ATen does this on a CPU (at::mm with a dtype is CUDA's). Returns false, and leaves c
/// unchanged, if this LibTorch has no MKL, or if neither a matrix nor its transpose has contiguous rows.
bool multiply_bfloat16_by_mkl(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate);

/// The same for bfloat16 or float16 a and b by float32 products of pieces of at most 1024 x 1024. The 12 MiB of scratch
/// are kept for the next call. Sums of at most 1024 terms are computed in float32, and added in order of k in float32;
/// one rounding.
void multiply_in_float32(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate);

}  // namespace trireme::ops
