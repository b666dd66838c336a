#include "trireme/ops/checks.h"

#include <cmath>
#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/cross_entropy_kernels.h"

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

std::string device_name(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda() ? "CUDA " : "CPU "; }
bool has_kernels(const at::Tensor& tensor) { return tensor.is_cpu() || tensor.is_cuda(); }

}  // namespace

void check_tensor(std::string_view operation, std::string_view name, const at::Tensor& tensor, at::IntArrayRef shape,
                  at::ScalarType dtype) {
  if (tensor.defined() && tensor.sizes() == shape && tensor.scalar_type() == dtype && tensor.is_contiguous() &&
      has_kernels(tensor))
    return;
  throw ShapeError(subject(operation, name, tensor) + "it must be contiguous " + device_name(tensor) +
                   std::string(dtype_name(dtype)) + " " + shape_text(shape));
}

void check_gradient(std::string_view operation, std::string_view name, const Gradient& gradient, at::IntArrayRef shape,
                    at::ScalarType dtype) {
  const bool wide = gradient.defined() && gradient.to.scalar_type() == statistics_dtype(dtype);
  check_tensor(operation, name, gradient.to, shape, wide ? statistics_dtype(dtype) : dtype);
}

void check_rows_view(std::string_view operation, std::string_view name, const at::Tensor& tensor, at::IntArrayRef shape,
                     at::ScalarType dtype) {
  if (tensor.defined() && tensor.sizes() == shape && tensor.scalar_type() == dtype && has_kernels(tensor) &&
      (tensor.stride(-1) == 1 || tensor.size(-1) == 1))
    return;
  throw ShapeError(subject(operation, name, tensor) + "it must be " + device_name(tensor) +
                   std::string(dtype_name(dtype)) + " " + shape_text(shape) + " with a contiguous last dimension");
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

// Coefficients of tanh's parabolas are divided by its square.
constexpr double kLeastSoftcap = 1e-18;

void check_softcap(std::string_view operation, double softcap) {
  if (softcap == 0 || (softcap >= kLeastSoftcap && std::isfinite(softcap))) return;
  throw ShapeError(std::string(operation) + ": softcap = " + std::to_string(softcap) +
                   "; it must be finite and at least 1e-18, or 0 for none");
}

void check_targets(std::string_view operation, const at::Tensor& targets, int64_t vocabulary) {
  if (!targets.is_cpu()) return;
  const int64_t* target = targets.data_ptr<int64_t>();
  for (int64_t t = 0; t < targets.numel(); ++t)
    if (target[t] != kNotSupervised && (target[t] < 0 || target[t] >= vocabulary))
      throw ShapeError(std::string(operation) + ": targets[" + std::to_string(t) + "] = " + std::to_string(target[t]) +
                       " is outside the vocabulary of " + std::to_string(vocabulary) + "; use 0 to " +
                       std::to_string(vocabulary - 1) + ", or -100 for a token that is not supervised");
}

void check_tokens(std::string_view operation, const at::Tensor& tokens, int64_t vocabulary) {
  const int64_t* token = tokens.data_ptr<int64_t>();
  for (int64_t t = 0; t < tokens.numel(); ++t)
    if (token[t] < 0 || token[t] >= vocabulary)
      throw ShapeError(std::string(operation) + ": tokens[" + std::to_string(t) + "] = " + std::to_string(token[t]) +
                       " is outside the vocabulary of " + std::to_string(vocabulary) +
                       "; the tokenizer and the model do not belong together");
}

}  // namespace trireme::ops
