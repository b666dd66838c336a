// The mean of some neighbouring rows of each sequence: what a classification head reads. Processors only.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::ops {

/// y [B,D] = mean of the rows ranges[b][0] .. ranges[b][1] - 1 of x [T,D].
///
/// Shapes    ranges [B,2] int64, contiguous; none is empty
/// Numerics  summed row by row in the statistics dtype, rounded once. Bits do not depend on threads
/// Errors    ShapeError naming the tensor or the first range that is empty or outside x
void pool_forward(const at::Tensor& y, const at::Tensor& x, const at::Tensor& ranges);

/// dx [T,D]: each row of range b gets dy[b] / (number of its rows), all other rows 0. Ranges must not overlap.
void pool_backward(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& ranges);

}  // namespace trireme::ops
