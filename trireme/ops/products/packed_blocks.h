// Packed matrices (packed.h) of matrices in blocks. Their elements stay codes of 4 or 8 bits, so few rows read these
// and scales, and widen them in registers.
#pragma once

#include "trireme/ops/blocks/part.h"
#include "trireme/ops/products/packed.h"

namespace trireme::ops {

/// Whether every block of a part lies in one of its rows. Only such parts stay in blocks; others are packed as matrices
/// of the compute dtype.
bool packs_blocks(const BlockPart& part);

/// Bytes of a packed W [N,K] in blocks: the same on every machine. Nested scales are resolved, so bitsandbytes' formats
/// take 4.5 bits an element; GGUF's take what they take in files.
int64_t packed_block_bytes(int64_t n, int64_t k, base::BlockFormat format);

/// A W [N,K] in the panel order of the kernel for `dtype`. Where LibTorch multiplies, its rows follow each other.
struct PackedBlocks {
  at::Tensor bytes;  ///< packed_block_bytes() of them, as those of a PackedMatrix
  int64_t n = 0, k = 0;  ///< k is a multiple of the format's block
  at::ScalarType dtype = at::kFloat;  ///< what it is widened to
  base::BlockFormat format = base::BlockFormat::none;
};

/// Writes rows [first, first + w.rows) of W, in one or more calls, from the first row to the last.
///
/// Cost      reads and writes each byte once, on LibTorch's threads
/// Errors    ShapeError if w does not fit, or if its blocks do not lie in rows
void pack(const PackedBlocks& to, const BlockMatrix& w, int64_t first = 0);

/// The same for a W [N,K] that was packed as a matrix of a compute dtype, because its blocks do not lie in rows.
void pack(const PackedMatrix& to, const BlockMatrix& w, int64_t first = 0);

/// c = a W^T
///
/// Shapes, dtypes, errors  as multiply_packed() of packed.h
/// Cost      2 M N K operations; reads W once for up to 384 rows, and widens it once for them
/// Numerics  the bits of multiply_blocks() with our kernels, for any M and any number of threads. Kernels with
///           AVX512-BF16 count values below 1.2e-38 as 0
void multiply_packed(const at::Tensor& c, const at::Tensor& a, const PackedBlocks& b);

/// to [R,K] = rows `rows` [R] int64 of a packed W [N,K], rounded to its dtype; -1: zeros. Of a head's matrix, rows of
/// the embedding.
///
/// Errors    ShapeError naming the sizes, or the row that the matrix has not
void unpack_columns(const at::Tensor& to, const PackedBlocks& b, const at::Tensor& rows);

/// With one kernel, as in packed.h.
void pack_by(const GemmKernel& kernel, const PackedBlocks& to, const BlockMatrix& w, int64_t first = 0);
void multiply_packed_by(const GemmKernel& kernel, const at::Tensor& c, const at::Tensor& a, const PackedBlocks& b);
void unpack_columns_by(const GemmKernel& kernel, const at::Tensor& to, const PackedBlocks& b, const at::Tensor& rows);

}  // namespace trireme::ops
