// Matrix products: the one way to them. Our own kernels where the processor has AVX-512; LibTorch's, which are oneDNN
// and MKL, everywhere else, for float64, for bfloat16 where the processor has matrix units, and for the few layouts
// ours leave out.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "trireme/ops/gemm_kernel.h"

namespace trireme::ops {

/// c = a b, or with `accumulate` c + a b.
///
/// Shapes    a [M,K], b [K,N], c [M,N]. a and b are matrices with contiguous rows, or transposed views of such; c has
///           contiguous rows. c may not overlap a or b
/// dtypes    a and b of one compute dtype. c of the same; or, from bfloat16, float32. `accumulate` needs a c that
///           loses nothing: float32 or float64
/// Cost      2 M N K operations; packs b (and an a that is transposed, or that the kernel wants packed) as it goes, in
///           1.9 MiB of scratch for each thread, kept for the next call. LibTorch's bfloat16: see multiply_by_library
/// Numerics  sums in float32 (float64), one rounding. Our kernels: bits do not depend on the number of threads
/// Errors    ShapeError naming the sizes
void multiply(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate = false);

/// The kernel that multiply() uses for results of this dtype, by name: "avx512-bf16", "avx512", "avx512, 6 x 64" or
/// "LibTorch".
const char* product_kernel_name(at::ScalarType dtype);

/// Our kernels for this dtype that the processor can run, the fastest first; none where LibTorch multiplies.
std::span<const GemmKernel* const> gemm_kernels(at::ScalarType dtype);

/// multiply() with one kernel, for tests and benchmarks; false if it leaves this product out, and c is then as before.
bool multiply_by(const GemmKernel& kernel, const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
                 bool accumulate = false);

}  // namespace trireme::ops
