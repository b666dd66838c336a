// Additions and activations. An activation's backward works in place and computes the forward's output again, so that a
// block saves only the inputs of its activation.
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/elementwise/activation_kernels.h"
#include "trireme/ops/elementwise/elementwise_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/simd/past_caches.h"

namespace trireme::ops {
namespace {

constexpr int64_t kPieceWidth = 1024;

/// Calls body(first element, rows, width) for `count` elements of any shape: rows of 1024 elements, then one shorter
/// row.
template <class Body>
void in_rows(int64_t count, const Body& body) {
  const int64_t rows = count / kPieceWidth, rest = count % kPieceWidth;
  if (rows > 0) body(0, rows, kPieceWidth);
  if (rest > 0) body(rows * kPieceWidth, 1, rest);
}

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
  const Announced announced(
      [&] { return row_operation(operation, y.scalar_type(), y.size(0), y.size(1), {&y, &gate_up}); });
  if (announced.skipped()) return;
  if (y.is_cuda()) return cuda_kernels().gated_forward(arguments, y.size(0));
  arguments.past_caches = past_caches(y, arguments.width, gate_up.const_data_ptr());
  run_rows(gated_forward_rows, arguments, y.size(0), arguments.width);
}

void gated_backward(const char* operation, Activation activation, const at::Tensor& gate_up, const at::Tensor& dy) {
  const auto arguments = gated_arguments(operation, activation, "dy", gate_up, dy);
  const Announced announced([&] {
    return row_operation(operation, dy.scalar_type(), dy.size(0), dy.size(1), {&gate_up, &gate_up, &dy, &dy});
  });
  if (announced.skipped()) return;
  if (dy.is_cuda()) return cuda_kernels().gated_backward(arguments, dy.size(0));
  run_rows(gated_backward_rows, arguments, dy.size(0), arguments.width);
}

}  // namespace

void add_forward(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b) {
  const auto dtype = compute_dtype("add_forward", "a", a);
  check_tensor("add_forward", "a", a, a.sizes(), dtype);
  check_tensor("add_forward", "b", b, a.sizes(), dtype);
  check_tensor("add_forward", "y", y, a.sizes(), dtype);
  const Announced announced([&] {
    return row_operation("add_forward", dtype, a.numel() / std::max<int64_t>(1, a.size(-1)), a.size(-1), {&y, &a, &b});
  });
  if (announced.skipped()) return;
  const auto add = [&](int64_t first, int64_t rows, int64_t width) {
    const int64_t skip_bytes = first * static_cast<int64_t>(a.element_size());
    const AddArguments arguments{storage_of(dtype),
                                 width,
                                 static_cast<char*>(y.mutable_data_ptr()) + skip_bytes,
                                 static_cast<const char*>(a.const_data_ptr()) + skip_bytes,
                                 static_cast<const char*>(b.const_data_ptr()) + skip_bytes,
                                 width,
                                 width == kPieceWidth && past_caches(y, width, a.const_data_ptr(), b.const_data_ptr())};
    y.is_cuda() ? cuda_kernels().add(arguments, rows) : run_rows(add_rows, arguments, rows, width);
  };
  y.is_cuda() ? add(0, 1, a.numel()) : in_rows(a.numel(), add);
}

void accumulate(const at::Tensor& sum, const at::Tensor& x) {
  constexpr auto kOperation = "accumulate";
  const auto dtype = compute_dtype(kOperation, "x", x), sum_dtype = compute_dtype(kOperation, "sum", sum);
  check_tensor(kOperation, "x", x, x.sizes(), dtype);
  const bool one_of_two = sum_dtype == dtype || sum_dtype == at::kDouble;
  check_tensor(kOperation, "sum", sum, x.sizes(), one_of_two ? sum_dtype : statistics_dtype(dtype));
  const Announced announced([&] { return row_operation(kOperation, dtype, x.numel(), 1, {&sum, &sum, &x}); });
  if (announced.skipped()) return;
  if (sum.is_cuda()) {
    at::Tensor(sum).add_(x);
    return;
  }
  in_rows(x.numel(), [&](int64_t first, int64_t rows, int64_t width) {
    char* to = static_cast<char*>(sum.mutable_data_ptr()) + first * static_cast<int64_t>(sum.element_size());
    const char* from = static_cast<const char*>(x.const_data_ptr()) + first * static_cast<int64_t>(x.element_size());
    const Storage storage = storage_of(dtype);
    if (sum_dtype == dtype) return run_rows<AddArguments>(add_rows, {storage, width, to, to, from, width}, rows, width);
    if (sum_dtype == statistics_dtype(dtype))
      return run_rows<AccumulateArguments>(accumulate_rows, {storage, width, to, from}, rows, width);
    // float64 sums of narrower elements are not on a training step's path: left to the compiler.
    with_storage(storage, [&]<class T>() {
      for (int64_t i = 0; i < rows * width; ++i)
        reinterpret_cast<double*>(to)[i] += static_cast<double>(widen(reinterpret_cast<const T*>(from)[i]));
    });
  });
}

void write_gradient(const Gradient& gradient, const at::Tensor& x) {
  if (!gradient.defined()) return;
  if (gradient.accumulate) return accumulate(gradient.to, x);
  const Announced announced(
      [&] { return row_operation("write_gradient", x.scalar_type(), x.numel(), 1, {&gradient.to, &x}); });
  if (announced.skipped()) return;
  at::Tensor(gradient.to).copy_(x);
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
  const Announced announced(
      [&] { return row_operation("gelu_forward", y.scalar_type(), y.size(0), y.size(1), {&y, &x}); });
  if (announced.skipped()) return;
  if (y.is_cuda()) return cuda_kernels().gelu_forward(arguments, y.size(0));
  arguments.past_caches = past_caches(y, arguments.width, x.const_data_ptr());
  run_rows(gelu_forward_rows, arguments, y.size(0), arguments.width);
}

void gelu_backward(const at::Tensor& x, const at::Tensor& dy) {
  const auto arguments = gelu_arguments("gelu_backward", "dy", x, dy);
  const Announced announced(
      [&] { return row_operation("gelu_backward", dy.scalar_type(), dy.size(0), dy.size(1), {&x, &x, &dy, &dy}); });
  if (announced.skipped()) return;
  if (dy.is_cuda()) return cuda_kernels().gelu_backward(arguments, dy.size(0));
  run_rows(gelu_backward_rows, arguments, dy.size(0), arguments.width);
}

void softcap_forward(const at::Tensor& x, double cap) {
  constexpr auto kOperation = "softcap_forward";
  const auto dtype = compute_dtype(kOperation, "x", x);
  check_dims(kOperation, "x", x, 2);
  check_tensor(kOperation, "x", x, x.sizes(), dtype);
  check_softcap(kOperation, cap);
  if (cap == 0) return;
  const Announced announced([&] { return row_operation(kOperation, dtype, x.size(0), x.size(1), {&x, &x}); });
  if (announced.skipped()) return;
  const SoftcapArguments arguments{storage_of(dtype), x.size(1), x.mutable_data_ptr(), cap};
  if (x.is_cuda()) return cuda_kernels().softcap(arguments, x.size(0));
  run_rows(softcap_rows, arguments, x.size(0), x.size(1));
}

}  // namespace trireme::ops
