// Rounding to 8 bits on a GPU (products/float8.h).
#pragma once

#include <cstdint>

#include "trireme/ops/products/float8.h"

namespace trireme::ops::cuda {

/// On the device; written by round_to_float8(). cuBLASLt reads the scale, at a multiple of 16 bytes.
struct alignas(16) Float8Figures {
  float scale;
  uint32_t largest;  ///< bits of the largest magnitude
};

/// to = the numbers of x, a matrix of bfloat16, divided by their scale and rounded; with `transposed` to [columns,
/// rows], otherwise [rows, columns].
///
/// Shapes    rows and columns are multiples of 16, and so are the addresses of x, of its rows and of `to`
/// Numerics  as ops::multiply_float8: bits do not depend on the order of threads
void round_to_float8(uint8_t* to, Float8Figures* figures, const void* x, int64_t rows, int64_t columns,
                     int64_t row_stride, Float8 format, bool transposed);

}  // namespace trireme::ops::cuda
