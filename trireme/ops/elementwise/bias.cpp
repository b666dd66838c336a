// Biases of linear layers, and the sum over rows that is their gradient.
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/elementwise/elementwise_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/simd/row_sums.h"

namespace trireme::ops {

void bias_forward(const at::Tensor& y, const at::Tensor& bias) {
  const auto dtype = compute_dtype("bias_forward", "y", y);
  check_dims("bias_forward", "y", y, 2);
  check_tensor("bias_forward", "y", y, y.sizes(), dtype);
  check_tensor("bias_forward", "bias", bias, {y.size(1)}, dtype);
  const Announced announced([&] { return row_operation("bias_forward", dtype, y.size(0), y.size(1), {&y, &y}); });
  if (announced.skipped()) return;
  const AddArguments arguments{storage_of(dtype),     y.size(1), y.mutable_data_ptr(), y.const_data_ptr(),
                               bias.const_data_ptr(), 0};
  if (y.is_cuda()) return cuda_kernels().add(arguments, y.size(0));
  run_rows(add_rows, arguments, y.size(0), y.size(1));
}

void bias_backward(const Gradient& dbias, const at::Tensor& dy) {
  if (!dbias.defined()) return;
  const auto dtype = compute_dtype("bias_backward", "dy", dy);
  check_dims("bias_backward", "dy", dy, 2);
  check_tensor("bias_backward", "dy", dy, dy.sizes(), dtype);
  check_gradient("bias_backward", "dbias", dbias, {dy.size(1)}, dtype);
  const Announced announced([&] { return row_operation("bias_backward", dtype, dy.size(0), dy.size(1), {&dy}); });
  if (announced.skipped()) return;
  const ColumnSum all{storage_of(dtype), dy.size(1), dy.const_data_ptr(), nullptr};
  if (dy.is_cuda()) return cuda_kernels().column_sum(all, dy.size(0), cuda_gradient(dbias));
  sum_rows({&dbias}, dy.size(0), dy.size(1), statistics_dtype(dtype),
           [&](int64_t first, int64_t last, void* const* sums) {
             ColumnSum arguments = all;
             arguments.sum = sums[0];
             column_sum_rows(arguments, first, last);
           });
}

}  // namespace trireme::ops
