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

/// The value of a float16 that is finite.
inline float value_of_half(uint16_t bits) {
  const uint32_t size = static_cast<uint32_t>(bits & 0x7FFF) << 13, sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  if (size >= 0x00800000) return __builtin_bit_cast(float, sign | (size + 0x38000000));
  const float least = static_cast<float>(size >> 13) * 0x1p-24f;  // below 2^-14
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, least));
}

/// The scale of the block with element number `element` of the whole matrix, which lies in row `row` of `part`.
inline float scale_at(const BlockMatrix& matrix, const BlockRows& part, int64_t row, int64_t element) {
  const int64_t block = element >> matrix.block_shift;
  const int64_t start = part.scales_per_row > 0 ? part.origin + row * part.row_stride : part.origin;
  const int64_t at = row * part.scales_per_row + block - (start >> matrix.block_shift);
  if (part.scales != nullptr) return part.scales[at];
  if (part.half_scales != nullptr) return value_of_half(part.half_scales[at]);
  return matrix.nested_code[part.nested_codes[at]] * part.nested_scales[block / 256] + part.offset;
}

/// Calls write(scale, codes, to, count) for each piece of a row that lies in one block: `count` elements, of nibbles an
/// even number, from the codes at `codes` to element `to`.
template <class Write>
__attribute__((always_inline)) inline void for_each_block(const BlockMatrix& matrix, int64_t row, int64_t rows,
                                                          int64_t column, int64_t columns, int64_t ld,
                                                          const Write& write) {
  const int64_t values = int64_t{1} << matrix.block_shift;
  for (int64_t r = 0; r < rows; ++r) {
    const BlockRows& part = part_of(matrix, row + r);
    const int64_t own = row + r - part.first;
    const uint8_t* codes = part.codes + (own * matrix.columns + column) * matrix.bits / 8;
    int64_t element = part.origin + own * part.row_stride + column;
    for (int64_t at = 0; at < columns;) {
      const int64_t left = values - (element & (values - 1)), count = left < columns - at ? left : columns - at;
      write(scale_at(matrix, part, own, element), codes, r * ld + at, count);
      at += count, element += count, codes += count * matrix.bits / 8;
    }
  }
}

}  // namespace
}  // namespace trireme::ops
