// Additions and activations. Backwards work in place and emit the forward's output again, so that a block
// saves the inputs of its activation only.
#include "trireme/ops/activation_kernels.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda_kernels.h"
#include "trireme/ops/elementwise_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/past_caches.h"

namespace trireme::ops {
namespace {

GatedArguments gated_arguments(const char* operation, Activation activation, const char* y_name,
                               const at::Tensor& gate_up, const at::Tensor& y) {
  const auto dtype = compute_dtype(operation, "gate_up", gate_up);
  check_dims(operation, "gate_up", gate_up, 2);
  check_dims(operation, y_name, y, 2);
  const int64_t width = y.size(1);
  check_tensor(operation, "gate_up", gate_up, {gate_up.size(0), 2 * width}, dtype);
  check_tensor(operation, y_name, y, {gate_up.size(0), width}, dtype);
  return {activation, storage_of(dtype), width, gate_up.mutable_data_ptr(), y.mutable_data_ptr()};
}

GeluArguments gelu_arguments(const char* operation, const char* y_name, const at::Tensor& x, const at::Tensor& y) {
  const auto dtype = compute_dtype(operation, "x", x);
  check_dims(operation, "x", x, 2);
  check_tensor(operation, "x", x, x.sizes(), dtype);
  check_tensor(operation, y_name, y, x.sizes(), dtype);
  return {storage_of(dtype), x.size(1), x.mutable_data_ptr(), y.mutable_data_ptr()};
}

void gated_forward(const char* operation, Activation activation, const at::Tensor& y, const at::Tensor& gate_up) {
  auto arguments = gated_arguments(operation, activation, "y", gate_up, y);
  if (y.is_cuda()) return cuda_kernels().gated_forward(arguments, y.size(0));
  arguments.past_caches = past_caches(y, arguments.width, gate_up.const_data_ptr());
  parallel_rows(y.size(0), row_grain(arguments.width),
                [&](int64_t first, int64_t last) { gated_forward_rows(arguments, first, last); });
}

void gated_backward(const char* operation, Activation activation, const at::Tensor& gate_up, const at::Tensor& dy) {
  const auto arguments = gated_arguments(operation, activation, "dy", gate_up, dy);
  if (dy.is_cuda()) return cuda_kernels().gated_backward(arguments, dy.size(0));
  parallel_rows(dy.size(0), row_grain(arguments.width),
                [&](int64_t first, int64_t last) { gated_backward_rows(arguments, first, last); });
}

}  // namespace

void add_forward(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b) {
  const auto dtype = compute_dtype("add_forward", "a", a);
  check_tensor("add_forward", "a", a, a.sizes(), dtype);
  check_tensor("add_forward", "b", b, a.sizes(), dtype);
  check_tensor("add_forward", "y", y, a.sizes(), dtype);
  if (y.is_cuda()) {
    const int64_t count = a.numel();
    return cuda_kernels().add(
        {storage_of(dtype), count, y.mutable_data_ptr(), a.const_data_ptr(), b.const_data_ptr(), count}, 1);
  }
  // Any shape will do: it is added in rows of 1024 elements and one shorter row at the end.
  constexpr int64_t kWidth = 1024;
  const int64_t whole_rows = a.numel() / kWidth, rest = a.numel() % kWidth;
  AddArguments arguments{storage_of(dtype),
                         kWidth,
                         y.mutable_data_ptr(),
                         a.const_data_ptr(),
                         b.const_data_ptr(),
                         kWidth,
                         past_caches(y, kWidth, a.const_data_ptr(), b.const_data_ptr())};
  parallel_rows(whole_rows, row_grain(kWidth), [&](int64_t first, int64_t last) { add_rows(arguments, first, last); });
  if (rest == 0) return;
  const int64_t skip_bytes = whole_rows * kWidth * static_cast<int64_t>(c10::elementSize(dtype));
  arguments.width = arguments.b_stride = rest;
  arguments.past_caches = false;
  arguments.y = static_cast<char*>(arguments.y) + skip_bytes;
  arguments.a = static_cast<const char*>(arguments.a) + skip_bytes;
  arguments.b = static_cast<const char*>(arguments.b) + skip_bytes;
  add_rows(arguments, 0, 1);
}

void swiglu_forward(const at::Tensor& y, const at::Tensor& gate_up) {
  gated_forward("swiglu_forward", Activation::kSilu, y, gate_up);
}
void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& dy) {
  gated_backward("swiglu_backward", Activation::kSilu, gate_up, dy);
}
void geglu_forward(const at::Tensor& y, const at::Tensor& gate_up) {
  gated_forward("geglu_forward", Activation::kGelu, y, gate_up);
}
void geglu_backward(const at::Tensor& gate_up, const at::Tensor& dy) {
  gated_backward("geglu_backward", Activation::kGelu, gate_up, dy);
}

void gelu_forward(const at::Tensor& y, const at::Tensor& x) {
  auto arguments = gelu_arguments("gelu_forward", "y", x, y);
  if (y.is_cuda()) return cuda_kernels().gelu_forward(arguments, y.size(0));
  arguments.past_caches = past_caches(y, arguments.width, x.const_data_ptr());
  parallel_rows(y.size(0), row_grain(arguments.width),
                [&](int64_t first, int64_t last) { gelu_forward_rows(arguments, first, last); });
}

void gelu_backward(const at::Tensor& x, const at::Tensor& dy) {
  const auto arguments = gelu_arguments("gelu_backward", "dy", x, dy);
  if (dy.is_cuda()) return cuda_kernels().gelu_backward(arguments, dy.size(0));
  parallel_rows(dy.size(0), row_grain(arguments.width),
                [&](int64_t first, int64_t last) { gelu_backward_rows(arguments, first, last); });
}

void softcap_forward(const at::Tensor& x, double cap) {
  constexpr auto kOperation = "softcap_forward";
  const auto dtype = compute_dtype(kOperation, "x", x);
  check_dims(kOperation, "x", x, 2);
  check_tensor(kOperation, "x", x, x.sizes(), dtype);
  check_softcap(kOperation, cap);
  if (cap == 0) return;
  const SoftcapArguments arguments{storage_of(dtype), x.size(1), x.mutable_data_ptr(), cap};
  if (x.is_cuda()) return cuda_kernels().softcap(arguments, x.size(0));
  parallel_rows(x.size(0), row_grain(x.size(1)),
                [&](int64_t first, int64_t last) { softcap_rows(arguments, first, last); });
}

}  // namespace trireme::ops
