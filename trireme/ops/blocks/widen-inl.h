// The walk over a part of a matrix in blocks, for the kernels that widen it.
#pragma once

#include "trireme/ops/blocks/matrix.h"

namespace trireme::ops {
namespace {

inline const BlockRows& part_of(const BlockMatrix& matrix, int64_t row) {
  const BlockRows* part = matrix.parts;
  while (row >= part->first + part->count) ++part;
  return *part;
}

/// The scale of the block with element number `element` of the whole matrix, which lies in row `row` of `part`.
inline float scale_at(const BlockMatrix& matrix, const BlockRows& part, int64_t row, int64_t element) {
  const int64_t block = element / 64;
  const int64_t start = part.scales_per_row > 0 ? part.origin + row * part.row_stride : part.origin;
  const int64_t at = row * part.scales_per_row + block - start / 64;
  if (part.scales != nullptr) return part.scales[at];
  return matrix.nested_code[part.nested_codes[at]] * part.nested_scales[block / 256] + part.offset;
}

/// Calls write(scale, codes, to, count) for each piece of a row that lies in one block: `count` elements, an even
/// number, from the nibbles at `codes` to element `to`.
template <class Write>
__attribute__((always_inline)) inline void for_each_block(const BlockMatrix& matrix, int64_t row, int64_t rows,
                                                          int64_t column, int64_t columns, int64_t ld,
                                                          const Write& write) {
  for (int64_t r = 0; r < rows; ++r) {
    const BlockRows& part = part_of(matrix, row + r);
    const int64_t own = row + r - part.first;
    const uint8_t* codes = part.codes + (own * matrix.columns + column) / 2;
    int64_t element = part.origin + own * part.row_stride + column;
    for (int64_t at = 0; at < columns;) {
      const int64_t left = 64 - element % 64, count = left < columns - at ? left : columns - at;
      write(scale_at(matrix, part, own, element), codes, r * ld + at, count);
      at += count, element += count, codes += count / 2;
    }
  }
}

}  // namespace
}  // namespace trireme::ops
