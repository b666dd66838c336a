// Matrix products whose right operand is packed once: for generation, where few rows meet the same weights again and
// again. multiply() packs its B in every call, which costs more than the product if A has few rows.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/ops/products/kernels.h"

namespace trireme::ops {

/// Bytes of a packed B [K,N]: the same on every machine. N is rounded up to 64 and K to 2, and 256 bytes are added.
int64_t packed_bytes(int64_t n, int64_t k, at::ScalarType dtype);

/// A B [K,N] in the panel order of the kernel that multiplies this dtype and K. Where LibTorch multiplies (products.h),
/// and on a GPU, its columns follow each other instead.
struct PackedMatrix {
  at::Tensor bytes;  ///< packed_bytes() of them, uint8, contiguous; on a processor from a multiple of 64 on
  int64_t n = 0, k = 0;
  at::ScalarType dtype = at::kFloat;
};

/// Writes columns [first, first + b.size(1)) of a packed matrix. A matrix may be packed in several calls, one after the
/// other, until every column is written.
///
/// Shapes    b [K,columns] with contiguous rows, or a transposed view of such a tensor: of weights W [N,K] pass W.t()
/// Cost      reads and writes each element once, on LibTorch's threads
/// Errors    ShapeError if b does not fit
void pack(const PackedMatrix& to, const at::Tensor& b, int64_t first = 0);

/// c = a b
///
/// Shapes    a [M,K] and c [M,N] with contiguous rows. c may not overlap a or b
/// dtypes    a of b's dtype; c of the same, or float32 for bfloat16 and float16
/// Cost      2 M N K operations; reads b once for up to 384 rows. Threads divide columns
/// Numerics  the bits of multiply() with our kernels, for any M and any number of threads
/// Errors    ShapeError naming the sizes
void multiply_packed(const at::Tensor& c, const at::Tensor& a, const PackedMatrix& b);

/// to [R,K] = columns `columns` [R] int64 of a packed matrix; -1: zeros. Of a head's matrix, rows of the embedding.
///
/// Errors    ShapeError naming the sizes, or the column that the matrix has not
void unpack_columns(const at::Tensor& to, const PackedMatrix& b, const at::Tensor& columns);

/// pack() and multiply_packed() with one kernel, for tests and benchmarks. K is a multiple of its k_multiple.
void pack_by(const GemmKernel& kernel, const PackedMatrix& to, const at::Tensor& b, int64_t first = 0);
void multiply_packed_by(const GemmKernel& kernel, const at::Tensor& c, const at::Tensor& a, const PackedMatrix& b);

}  // namespace trireme::ops
