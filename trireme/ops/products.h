// Matrix products: the one way to them. Our own kernels where the processor has AVX-512 (float32) or AVX512-BF16
// (bfloat16); LibTorch's, which are oneDNN and MKL, everywhere else, for float64, and for the few shapes ours leave
// out.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/ops/gemm_kernel.h"

namespace trireme::ops {

/// c = a b, or with `accumulate` c + a b.
///
/// Shapes    a [M,K], b [K,N], c [M,N]. a and b are matrices with contiguous rows, or transposed views of such; c has
///           contiguous rows. c may not overlap a or b
/// dtypes    a and b of one compute dtype. c of the same; or, from bfloat16, float32. `accumulate` needs a c that
///           loses nothing: float32 or float64
/// Cost      2 M N K operations; packs b (and a transposed a) as it goes, in 1.2 MiB of scratch for each thread, kept
///           for the next call. Where LibTorch multiplies, a float32 c from bfloat16 costs a bfloat16 product and one
///           pass, and rounds the product once
/// Numerics  sums in float32 (float64), one rounding. Our kernels: bits do not depend on the number of threads
/// Errors    ShapeError naming the sizes
void multiply(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate = false);

/// The kernel that multiply() uses for this dtype, by name: "avx512", "avx512-bf16", or "LibTorch".
const char* product_kernel_name(at::ScalarType dtype);

/// Our kernel for this dtype on this processor, or null.
const GemmKernel* gemm_kernel(at::ScalarType dtype);

}  // namespace trireme::ops
