// Products by LibTorch, for what our own kernels leave out (products.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::ops {

/// What multiply() says, with arguments that it has checked. A bfloat16 product whose result is float32 is MKL's
/// (below); where that leaves it out, or there is none (ARM), multiply_in_float32: it is never rounded to bfloat16 on
/// its way. Where no instruction multiplies bfloat16, LibTorch's product of it is far slower than its float32 product
/// (40 times with AVX2): there this calls multiply_in_float32, too.
void multiply_by_library(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate);

/// The same for a and b of bfloat16 and c of float32 by MKL, on matrix units where there are such: sums in float32,
/// never rounded. No function of ATen does it on a processor (at::mm with a dtype is CUDA's). False, and c as before,
/// where this LibTorch brings no MKL, or a matrix is not made of rows or a transposed view of such.
bool multiply_bfloat16_by_mkl(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate);

/// The same for a and b of bfloat16 by float32 products of pieces of 1024 x 1024 or less: 12 MiB of scratch, kept for
/// the next call. Sums of at most 1024 terms in float32 at a time, added in order of k in float32; one rounding.
void multiply_in_float32(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate);

}  // namespace trireme::ops
