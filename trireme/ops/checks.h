// Contracts of operations: shapes, dtypes, layout. They are checked at every call, before anything is written.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/ops/gradient.h"

namespace trireme::ops {

/// Throws ShapeError unless `tensor` is a contiguous tensor of this shape and dtype, on the CPU or a CUDA device.
void check_tensor(std::string_view operation, std::string_view name, const at::Tensor& tensor, at::IntArrayRef shape,
                  at::ScalarType dtype);

/// The same for a gradient, if it is wanted. Its dtype must be `dtype` or the statistics dtype of `dtype`.
void check_gradient(std::string_view operation, std::string_view name, const Gradient& gradient, at::IntArrayRef shape,
                    at::ScalarType dtype);

/// The same for a tensor whose last dimension is contiguous and whose other strides are free.
void check_rows_view(std::string_view operation, std::string_view name, const at::Tensor& tensor, at::IntArrayRef shape,
                     at::ScalarType dtype);

/// The dtype of `tensor` if operations can compute in it (float64, float32, bfloat16, float16); throws ShapeError
/// otherwise.
at::ScalarType compute_dtype(std::string_view operation, std::string_view name, const at::Tensor& tensor);

/// Throws ShapeError unless `tensor` has `num_dims` dimensions.
void check_dims(std::string_view operation, std::string_view name, const at::Tensor& tensor, int64_t num_dims);

/// Throws ShapeError unless `softcap` is 0 (none), or finite and at least 1e-18.
void check_softcap(std::string_view operation, double softcap);

/// Throws ShapeError if one of `ids` (int64) is neither `exempt` nor in [0, end). It names the first such id and
/// bounds(): "... = 7 is outside <bounds>". Ids on a GPU are not read: the code that copied them there has checked
/// them.
void check_ids(std::string_view operation, std::string_view name, const at::Tensor& ids, int64_t end,
               std::optional<int64_t> exempt, const std::function<std::string()>& bounds);

/// check_ids for targets [T]: in [0, vocabulary), or -100 for a token that is not supervised.
void check_targets(std::string_view operation, const at::Tensor& targets, int64_t vocabulary);

/// check_ids for tokens: in [0, vocabulary).
void check_tokens(std::string_view operation, const at::Tensor& tokens, int64_t vocabulary);

/// Whether `dtype` has two bytes: sums in it would lose bits.
inline bool is_narrow(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

/// The dtype of statistics for a compute dtype: float32, or float64 for float64.
inline at::ScalarType statistics_dtype(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace trireme::ops
