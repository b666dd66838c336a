#include "trireme/ops/checks.h"

#include <string>

#include "trireme/base/error.h"

namespace trireme::ops {
namespace {

std::string_view dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return "float64";
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kLong:
      return "int64";
    default:
      return c10::toString(dtype);
  }
}

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return (tensor.is_contiguous() ? "" : "non-contiguous ") + c10::DeviceTypeName(tensor.device().type()) + " " +
         std::string(dtype_name(tensor.scalar_type())) + " " + shape_text(tensor.sizes());
}

std::string subject(std::string_view operation, std::string_view name, const at::Tensor& tensor) {
  return std::string(operation) + ": " + std::string(name) + " is " + describe(tensor) + "; ";
}

}  // namespace

void check_tensor(std::string_view operation, std::string_view name, const at::Tensor& tensor, at::IntArrayRef shape,
                  at::ScalarType dtype) {
  if (tensor.defined() && tensor.sizes() == shape && tensor.scalar_type() == dtype && tensor.is_contiguous() &&
      tensor.is_cpu())
    return;
  throw ShapeError(subject(operation, name, tensor) + "it must be contiguous CPU " + std::string(dtype_name(dtype)) +
                   " " + shape_text(shape));
}

at::ScalarType compute_dtype(std::string_view operation, std::string_view name, const at::Tensor& tensor) {
  if (tensor.defined()) {
    const auto dtype = tensor.scalar_type();
    if (dtype == at::kDouble || dtype == at::kFloat || dtype == at::kBFloat16) return dtype;
  }
  throw ShapeError(subject(operation, name, tensor) + "operations compute in float64, float32 or bfloat16");
}

void check_dims(std::string_view operation, std::string_view name, const at::Tensor& tensor, int64_t num_dims) {
  if (tensor.defined() && tensor.dim() == num_dims) return;
  throw ShapeError(subject(operation, name, tensor) + "it must have " + std::to_string(num_dims) + " dimensions");
}

}  // namespace trireme::ops
