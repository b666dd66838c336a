// Row kernels of ops/elementwise/dropout.cpp, chosen for the processor at run time. Pointers are to whole tensors; rows
// first..last-1 are computed.
#pragma once

#include <cstdint>

#include "trireme/ops/storage.h"

namespace trireme::ops {

/// y = mask * x / (1 - p) of x in the storage type, or y += the same of x in the wide type.
struct DropoutArguments {
  Storage dtype;  ///< of y
  int64_t width;
  void* y;
  int64_t y_stride;  ///< elements from one row to the next
  const void* x;  ///< rows of `width` elements
  bool adds;  ///< x has the wide type, and is added to y
  const uint32_t* keys;  ///< of each row; null: nothing is dropped
  uint32_t threshold;  ///< p 2^32
  double factor;  ///< 1 / (1 - p)
  int64_t first_column;  ///< of the row in the whole tensor
};
void dropout_rows(const DropoutArguments& arguments, int64_t first, int64_t last);

}  // namespace trireme::ops
