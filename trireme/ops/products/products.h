// Matrix products: all of them go through multiply(). With AVX2 or AVX-512 our own kernels run. LibTorch's (oneDNN,
// MKL) run on other processors, for float64, for bfloat16 if the processor has matrix units, and for the few layouts
// that ours do not support.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "trireme/ops/products/kernels.h"

namespace trireme::ops {

/// c = a b, or with `accumulate` c + a b.
///
/// Shapes    a [M,K], b [K,N], c [M,N]. a and b have contiguous rows, or are transposed views of such tensors; c has
///           contiguous rows. c may not overlap a or b
/// dtypes    a and b of one compute dtype; c of the same, or float32 for bfloat16 and float16. `accumulate` needs a c
///           of float32 or float64, which loses nothing
/// Cost      2 M N K operations; packs b (and a, if it is transposed or the kernel needs it packed) into 1.9 MiB of
///           scratch per thread, which are kept for the next call. LibTorch's bfloat16: see multiply_by_library
/// Numerics  sums in float32 (float64), one rounding. Our kernels: bits do not depend on the number of threads
/// Errors    ShapeError naming the sizes
void multiply(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate = false);
/// c = addend + a b. Shapes, dtypes and errors as multiply(); addend [M,N] has the dtype of c.
/// Cost      on a GPU in bfloat16 the product's alone; otherwise it and one pass for the addition
/// Numerics  multiply() and add_forward(); on a GPU in bfloat16 the sum is rounded once
void multiply_onto(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend);

/// c = a b for a b in blocks, or with `transposed` c = a b^T. No copy of b in another dtype exists: it is widened where
/// it is packed. Where LibTorch multiplies, some of c's columns at a time: 4 MiB of b are widened.
///
/// Shapes    b [K,N], transposed [N,K]; otherwise as multiply()
/// Numerics  for our kernels the bits of multiply() with a dense b of a's dtype. Whole numbers times their scales are
///           not rounded to it where a kernel multiplies as float32 (all but AVX512-BF16)
/// Errors    as multiply(); Error for tensors on a GPU
void multiply_blocks(const at::Tensor& c, const at::Tensor& a, const BlockMatrix& b, bool transposed);

/// Rows [row, row + to.size(0)) of a matrix in blocks, in the dtype of `to`, whose rows are contiguous.
void widen(const at::Tensor& to, const BlockMatrix& matrix, int64_t row = 0);

/// The kernel that multiply() uses for results of this dtype, by name: "avx512-bf16", "avx512", "avx512, 6 x 64" or
/// "LibTorch".
const char* product_kernel_name(at::ScalarType dtype);

/// Our kernels for this dtype that the processor can run, the fastest first; none where LibTorch multiplies.
std::span<const GemmKernel* const> gemm_kernels(at::ScalarType dtype);

/// multiply() with one kernel, for tests and benchmarks; false, and c unchanged, if it does not support this product.
bool multiply_by(const GemmKernel& kernel, const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
                 bool accumulate = false);
/// multiply_blocks() with one kernel, likewise.
bool multiply_blocks_by(const GemmKernel& kernel, const at::Tensor& c, const at::Tensor& a, const BlockMatrix& b,
                        bool transposed);

}  // namespace trireme::ops
