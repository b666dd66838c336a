#include "trireme/ops/products/float8.h"
#include "trireme/ops/announce.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/products/float8_kernels.h"
#include "trireme/ops/products/library.h"
#include "trireme/ops/products/products.h"

namespace trireme::ops {
namespace {

void check_float8_operand(const char* name, const at::Tensor& x) {
  check_dims("multiply_float8", name, x, 2);
  if (x.scalar_type() != at::kBFloat16)
    throw ShapeError(
        fmt::format("multiply_float8: {} is {}; it must be bfloat16", name, c10::toString(x.scalar_type())));
  if (!is_matrix(x))
    throw ShapeError(
        fmt::format("multiply_float8: the rows of {}, or those of its transpose, must be contiguous", name));
}

void check_float8(const at::Tensor& c, const Float8Operand& a, const Float8Operand& b, const at::Tensor& scratch,
                  const at::Tensor& addend) {
  check_float8_operand("a", a.matrix);
  check_float8_operand("b", b.matrix);
  const int64_t m = a.matrix.size(0), k = a.matrix.size(1), n = b.matrix.size(1);
  if (b.matrix.size(0) != k)
    throw ShapeError(fmt::format("multiply_float8: a is [{}, {}] and b [{}, {}]", m, k, b.matrix.size(0), n));
  const auto dtype = c.scalar_type() == at::kFloat ? at::kFloat : at::kBFloat16;
  check_tensor("multiply_float8", "c", c, {m, n}, dtype);
  if (addend.defined()) check_tensor("multiply_float8", "addend", addend, {m, n}, dtype);
  check_tensor("multiply_float8", "scratch", scratch, {scratch.numel()}, at::kByte);
  if (addend.defined() && addend.data_ptr() == c.data_ptr() && dtype != at::kFloat)
    throw ShapeError("multiply_float8: accumulating into two bytes would lose bits; c must be float32");
  if (const int64_t bytes = float8_scratch_bytes(m, n, k, c.is_cuda()); scratch.numel() < bytes)
    throw ShapeError(fmt::format("multiply_float8: scratch has {} bytes and needs {}", scratch.numel(), bytes));
  if (c.is_cuda() && (m % 16 != 0 || n % 16 != 0 || k % 16 != 0))
    throw ShapeError(
        fmt::format("multiply_float8: a GPU multiplies multiples of 16, not [{}, {}] by [{}, {}]", m, k, k, n));
}

/// x with its numbers rounded, in `room`, in the same order.
at::Tensor rounded_to_float8(const Float8Operand& operand, const at::Tensor& room) {
  const bool transposed = is_transposed(operand.matrix);
  const at::Tensor x = transposed ? operand.matrix.t() : operand.matrix;
  const int64_t rows = x.size(0), width = x.size(1);
  at::Tensor y = room.narrow(0, 0, 2 * rows * width).view(at::kBFloat16).view({rows, width});
  float* largest = thread_scratch<Float8Largest, float>(rows);
  run_rows(float8_largest_rows, {.width = width, .x = x.const_data_ptr(), .x_stride = x.stride(0), .largest = largest},
           rows, width);
  const Float8Traits traits = traits_of(operand.format);
  const float most = rows == 0 ? 0 : *std::max_element(largest, largest + rows);
  run_rows(float8_round_rows,
           {.width = width,
            .x = x.const_data_ptr(),
            .x_stride = x.stride(0),
            .y = y.mutable_data_ptr(),
            .scale = float8_scale(most, traits.largest_exponent),
            .mantissa_bits = traits.mantissa_bits,
            .least_exponent = traits.least_exponent},
           rows, width);
  return transposed ? y.t() : y;
}

}  // namespace

int64_t float8_scratch_bytes(int64_t m, int64_t n, int64_t k, bool on_gpu) {
  const int64_t elements = (m + n) * k;
  return on_gpu ? kFloat8Figures + elements : 2 * elements;
}

void multiply_float8(const at::Tensor& c, const Float8Operand& a, const Float8Operand& b, const at::Tensor& scratch,
                     const at::Tensor& addend) {
  const Announced announced([&] { return product_operation("float8_product", c, a.matrix, c.size(1)); });
  if (announced.skipped()) return;
  check_float8(c, a, b, scratch, addend);
  const base::Metered metered(base::Activity::products);
  if (c.is_cuda()) return cuda_kernels().multiply_float8(c, a, b, scratch, addend);
  const at::Tensor left = rounded_to_float8(a, scratch);
  const int64_t of_left = 2 * a.matrix.numel();
  const at::Tensor right = rounded_to_float8(b, scratch.narrow(0, of_left, scratch.numel() - of_left));
  if (!addend.defined()) return multiply(c, left, right);
  if (addend.data_ptr() == c.data_ptr()) return multiply(c, left, right, /*accumulate=*/true);
  multiply_onto(c, left, right, addend);
}

}  // namespace trireme::ops
