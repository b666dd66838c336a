// A matrix in blocks as products read it: plain pointers, no ATen, for kernels that are compiled with flags of their
// own.
#pragma once

#include <cstdint>

namespace trireme::ops {

/// Some consecutive rows. Blocks are those of a whole matrix, of which these may be a part: element (row, column) is
/// number origin + row * row_stride + column there, and so has a place in a block.
struct BlockRows {
  int64_t first = 0, count = 0;  ///< rows of the BlockMatrix
  const uint8_t* codes = nullptr;  ///< row after row, two elements a byte
  int64_t origin = 0, row_stride = 0;
  const float* scales = nullptr;  ///< of each block that these rows touch; null: nested
  const uint8_t* nested_codes = nullptr;
  const float* nested_scales = nullptr;  ///< of the whole matrix
  float offset = 0;
  int64_t scales_per_row = 0;  ///< 0: the blocks of all rows follow each other
};

struct BlockMatrix {
  int64_t rows = 0, columns = 0;  ///< `columns` and every row_stride are even
  const float* code = nullptr;  ///< [16]: values of nibbles
  const float* nested_code = nullptr;  ///< [256]
  const BlockRows* parts = nullptr;  ///< one below the other
  int64_t num_parts = 0;
};

/// Writes rows [row, row + rows) and columns [column, column + columns) of a matrix, both `column` and `columns` even,
/// to `to` with `ld` elements from row to row. An element is code * scale in float32, rounded to the nearest of `to`.
using WidenRows = void (*)(const BlockMatrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns,
                           void* to, int64_t ld);

extern const WidenRows kWidenFloat, kWidenDouble, kWidenBfloat16, kWidenHalf;  ///< for every processor
// With AVX-512 F, BW and VL: the same bits.
extern const WidenRows kWidenFloatAvx512, kWidenBfloat16Avx512, kWidenHalfAvx512;

}  // namespace trireme::ops
