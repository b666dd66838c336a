// Row kernels of ops/products/float8.cpp, chosen for the processor at run time. Pointers are to whole tensors of
// bfloat16.
#pragma once

#include <cstdint>

namespace trireme::ops {

struct Float8Largest {
  int64_t width;
  const void* x;
  int64_t x_stride;  ///< elements from one row to the next
  float* largest;  ///< of each row: its largest magnitude; a NaN counts as infinity
};
void float8_largest_rows(const Float8Largest& arguments, int64_t first, int64_t last);

struct Float8Round {
  int64_t width;
  const void* x;
  int64_t x_stride;
  void* y;  ///< contiguous: scale times the nearest number of the format to x / scale
  float scale;
  int mantissa_bits, least_exponent;
};
void float8_round_rows(const Float8Round& arguments, int64_t first, int64_t last);

}  // namespace trireme::ops
