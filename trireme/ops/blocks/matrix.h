// A matrix in blocks as products read it: plain pointers, no ATen, for kernels that are compiled with flags of their
// own.
#pragma once

#include <cstdint>

namespace trireme::ops {

/// Some consecutive rows. Blocks are those of a whole matrix, of which these may be a part: element (row, column) is
/// number origin + row * row_stride + column there, and so has a place in a block.
struct BlockRows {
  int64_t first = 0, count = 0;  ///< rows of the BlockMatrix
  const uint8_t* codes = nullptr;  ///< row after row: a byte each, or two in a byte, the earlier one in the high nibble
  int64_t origin = 0, row_stride = 0;
  // Of each block that these rows touch, in one of three ways:
  const float* scales = nullptr;
  const uint16_t* half_scales = nullptr;  ///< float16
  const uint8_t* nested_codes = nullptr;
  const float* nested_scales = nullptr;  ///< of the whole matrix
  float offset = 0;
  int64_t scales_per_row = 0;  ///< 0: the blocks of all rows follow each other
};

inline constexpr int64_t kMostBlockValues = 64;  ///< elements of a block

struct BlockMatrix {
  int64_t rows = 0, columns = 0;  ///< of nibbles, `columns` and every row_stride are even
  int bits = 4;  ///< of a code: a nibble or a byte
  bool numbers = false;  ///< codes are whole numbers: nibbles less 8, or signed bytes
  int block_shift = 6;  ///< a block has 1 << block_shift elements
  const float* code = nullptr;  ///< [16]: values of nibbles, also if they are numbers
  const float* nested_code = nullptr;  ///< [256]
  const BlockRows* parts = nullptr;  ///< one below the other
  int64_t num_parts = 0;
};

/// Writes rows [row, row + rows) and columns [column, column + columns) of a matrix, of nibbles even
/// ones, to `to` with `ld` elements from row to row. An element is code * scale in float32, rounded to the nearest of
/// `to`.
using WidenRows = void (*)(const BlockMatrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns,
                           void* to, int64_t ld);

extern const WidenRows kWidenFloat, kWidenDouble, kWidenBfloat16, kWidenHalf;  ///< for every processor
// The same bits. With AVX-512 F, BW and VL, of nibbles:
extern const WidenRows kWidenFloatAvx512, kWidenBfloat16Avx512, kWidenHalfAvx512;
// Of numbers, for every instruction set:
extern const WidenRows kWidenNumbersFloat, kWidenNumbersBfloat16, kWidenNumbersHalf;

}  // namespace trireme::ops
