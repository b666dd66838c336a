// Contracts of operations: shapes, dtypes, layout. Checked at every call, before anything is written.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string_view>

#include "trireme/ops/gradient.h"

namespace trireme::ops {

/// Throws ShapeError unless `tensor` is a contiguous tensor of this shape and dtype, on the CPU or a CUDA device.
void check_tensor(std::string_view operation, std::string_view name, const at::Tensor& tensor, at::IntArrayRef shape,
                  at::ScalarType dtype);

/// Throws ShapeError unless `gradient` is such a tensor of this shape, and of the compute dtype `dtype` or its
/// statistics dtype.
void check_gradient(std::string_view operation, std::string_view name, const Gradient& gradient, at::IntArrayRef shape,
                    at::ScalarType dtype);

/// Throws ShapeError unless `tensor` is one of this shape and dtype whose last dimension is contiguous; its
/// other strides are free.
void check_rows_view(std::string_view operation, std::string_view name, const at::Tensor& tensor, at::IntArrayRef shape,
                     at::ScalarType dtype);

/// The dtype of `tensor` if operations can compute in it (float64, float32, bfloat16); throws ShapeError otherwise.
at::ScalarType compute_dtype(std::string_view operation, std::string_view name, const at::Tensor& tensor);

/// Throws ShapeError unless `tensor` has `num_dims` dimensions.
void check_dims(std::string_view operation, std::string_view name, const at::Tensor& tensor, int64_t num_dims);

/// Throws ShapeError unless `softcap` is 0 (none), or finite and at least 1e-18.
void check_softcap(std::string_view operation, double softcap);

/// Throws ShapeError naming the first of targets [T] int64 that is neither -100 nor in [0, vocabulary); those
/// on a device are not read.
void check_targets(std::string_view operation, const at::Tensor& targets, int64_t vocabulary);

/// Throws ShapeError naming the first of tokens int64, on the CPU, that is not in [0, vocabulary).
void check_tokens(std::string_view operation, const at::Tensor& tokens, int64_t vocabulary);

/// The dtype of statistics and losses for a compute dtype: float32, or float64 for float64.
inline at::ScalarType statistics_dtype(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace trireme::ops
