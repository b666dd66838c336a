// Row kernels of ops/elementwise/magnitude.cpp, chosen for the processor at run time.
#pragma once

#include <cstdint>

#include "trireme/ops/storage.h"

namespace trireme::ops {

/// Row t of y = x * (factors + shift), or with `adds` y += the same. Pointers are to whole tensors.
struct ScaleColumnsArguments {
  Storage dtype;  ///< of x and y; factors have its wide type
  int64_t width;
  void* y;
  int64_t y_stride;  ///< elements from one row to the next
  const void* x;
  int64_t x_stride;
  const void* factors;  ///< [width]
  double shift;
  bool adds;
};
void scale_columns_rows(const ScaleColumnsArguments& arguments, int64_t first, int64_t last);

/// Adds up (w + scale p)^2 for w and p [rows, width]. By rows: sums[t] of row t, for rows first..last-1. By columns:
/// sums[j] += column j, for the blocks first..last-1 of kColumns columns.
struct MergedSquaresArguments {
  static constexpr int64_t kColumns = 256;
  Storage dtype;  ///< of w; p and sums have its wide type
  int64_t rows, width;
  const void* w;
  const void* p;
  double scale;
  void* sums;
  bool by_columns;
};
void merged_squares_rows(const MergedSquaresArguments& arguments, int64_t first, int64_t last);

}  // namespace trireme::ops
