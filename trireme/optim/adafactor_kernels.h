// Kernels of optim/adafactor.cpp, chosen for the processor at run time. Each works on `count` neighbours in one row of
// a matrix, in float64.
#pragma once

#include <cstdint>

#include "trireme/ops/storage.h"

namespace trireme::optim {

struct FactorRun {
  ops::Storage dtype;    ///< of master and gradient: float32 or float64
  void* master;
  const void* gradient;
  double row;            ///< factor of the whole row, with the gradient's scale
  double* column;        ///< [count]
  int64_t count;
};

/// Sums of squares of the gradient, without its scale, and of the weights.
struct RowSquares {
  double gradient, weights;
};
RowSquares row_squares(const FactorRun& run);

/// column += (gradient row)^2.
void add_column_squares(const FactorRun& run);

/// The sum of squares of u = gradient row column.
double step_squares(const FactorRun& run);

/// p = p keep - rate u.
void move_weights(const FactorRun& run, double keep, double rate);

}  // namespace trireme::optim
