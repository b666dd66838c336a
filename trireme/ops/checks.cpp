#include "trireme/ops/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/ops/loss/cross_entropy_kernels.h"

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

std::string shape_text(at::IntArrayRef shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

const char* device_name(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda() ? "CUDA" : "CPU"; }
bool has_kernels(const at::Tensor& tensor) { return tensor.is_cpu() || tensor.is_cuda(); }

[[noreturn]] void refuse(std::string_view operation, std::string_view name, const at::Tensor& tensor,
                         std::string_view rule) {
  std::string what = "undefined";
  if (tensor.defined())
    what = fmt::format("{}{} {} {}", tensor.is_contiguous() ? "" : "non-contiguous ",
                       c10::DeviceTypeName(tensor.device().type()), dtype_name(tensor.scalar_type()),
                       shape_text(tensor.sizes()));
  throw ShapeError(fmt::format("{}: {} is {}; {}", operation, name, what, rule));
}

}  // namespace

void check_tensor(std::string_view operation, std::string_view name, const at::Tensor& tensor, at::IntArrayRef shape,
                  at::ScalarType dtype) {
  if (!tensor.defined() || tensor.sizes() != shape || tensor.scalar_type() != dtype || !tensor.is_contiguous() ||
      !has_kernels(tensor))
    refuse(operation, name, tensor,
           fmt::format("it must be contiguous {} {} {}", device_name(tensor), dtype_name(dtype), shape_text(shape)));
}

void check_gradient(std::string_view operation, std::string_view name, const Gradient& gradient, at::IntArrayRef shape,
                    at::ScalarType dtype) {
  if (!gradient.defined()) return;  // none is wanted
  const bool wide = gradient.to.scalar_type() == statistics_dtype(dtype);
  check_tensor(operation, name, gradient.to, shape, wide ? statistics_dtype(dtype) : dtype);
}

void check_rows_view(std::string_view operation, std::string_view name, const at::Tensor& tensor, at::IntArrayRef shape,
                     at::ScalarType dtype) {
  if (!tensor.defined() || tensor.sizes() != shape || tensor.scalar_type() != dtype || !has_kernels(tensor) ||
      (tensor.stride(-1) != 1 && tensor.size(-1) != 1))
    refuse(operation, name, tensor,
           fmt::format("it must be {} {} {} with a contiguous last dimension", device_name(tensor), dtype_name(dtype),
                       shape_text(shape)));
}

at::ScalarType compute_dtype(std::string_view operation, std::string_view name, const at::Tensor& tensor) {
  const auto dtype = tensor.defined() ? tensor.scalar_type() : at::kByte;
  if (dtype != at::kDouble && dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf)
    refuse(operation, name, tensor, "operations compute in float64, float32, bfloat16 or float16");
  return dtype;
}

void check_dims(std::string_view operation, std::string_view name, const at::Tensor& tensor, int64_t num_dims) {
  if (!tensor.defined() || tensor.dim() != num_dims)
    refuse(operation, name, tensor, fmt::format("it must have {} dimensions", num_dims));
}

void check_softcap(std::string_view operation, double softcap) {
  constexpr double kLeastSoftcap = 1e-18;  // coefficients of tanh's parabolas are divided by its square
  if (softcap == 0 || (softcap >= kLeastSoftcap && std::isfinite(softcap))) return;
  throw ShapeError(
      fmt::format("{}: softcap = {:g}; it must be finite and at least 1e-18, or 0 for none", operation, softcap));
}

void check_ids(std::string_view operation, std::string_view name, const at::Tensor& ids, int64_t end,
               std::optional<int64_t> exempt, const std::function<std::string()>& bounds) {
  if (!ids.is_cpu()) return;
  const int64_t* id = ids.data_ptr<int64_t>();
  for (int64_t t = 0; t < ids.numel(); ++t)
    if (id[t] != exempt && (id[t] < 0 || id[t] >= end))
      throw ShapeError(fmt::format("{}: {}[{}] = {} is outside {}", operation, name, t, id[t], bounds()));
}

void check_targets(std::string_view operation, const at::Tensor& targets, int64_t vocabulary) {
  check_ids(operation, "targets", targets, vocabulary, kNotSupervised, [=] {
    return fmt::format("the vocabulary of {}; use 0 to {}, or -100 for a token that is not supervised", vocabulary,
                       vocabulary - 1);
  });
}

void check_tokens(std::string_view operation, const at::Tensor& tokens, int64_t vocabulary) {
  check_ids(operation, "tokens", tokens, vocabulary, std::nullopt, [=] {
    return fmt::format("the vocabulary of {}; the tokenizer and the model do not belong together", vocabulary);
  });
}

}  // namespace trireme::ops
