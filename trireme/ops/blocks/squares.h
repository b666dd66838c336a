// Norms of a matrix in blocks with a low-rank product added: what DoRA divides by.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/ops/blocks/matrix.h"

namespace trireme::ops {

/// merged_squares() (ops.h) for a w [N,M] in blocks. Its rows are widened as many at a time as `wide` holds, into
/// scratch of the thread.
void merged_squares(const at::Tensor& squares, const BlockMatrix& w, const at::Tensor& b, const at::Tensor& a,
                    double scale, const at::Tensor& wide);

}  // namespace trireme::ops
