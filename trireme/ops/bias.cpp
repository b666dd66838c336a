// Biases of linear layers, and the sum over rows that is their gradient.
#include <cstring>

#include "trireme/ops/checks.h"
#include "trireme/ops/cuda_kernels.h"
#include "trireme/ops/elementwise_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/row_sums.h"

namespace trireme::ops {

void bias_forward(const at::Tensor& y, const at::Tensor& bias) {
  const auto dtype = compute_dtype("bias_forward", "y", y);
  check_dims("bias_forward", "y", y, 2);
  check_tensor("bias_forward", "y", y, y.sizes(), dtype);
  check_tensor("bias_forward", "bias", bias, {y.size(1)}, dtype);
  const AddArguments arguments{storage_of(dtype),     y.size(1), y.mutable_data_ptr(), y.const_data_ptr(),
                               bias.const_data_ptr(), 0};
  if (y.is_cuda()) return cuda_kernels().add(arguments, y.size(0));
  parallel_rows(y.size(0), row_grain(y.size(1)),
                [&](int64_t first, int64_t last) { add_rows(arguments, first, last); });
}

void bias_backward(const Gradient& dbias, const at::Tensor& dy) {
  const auto dtype = compute_dtype("bias_backward", "dy", dy);
  check_dims("bias_backward", "dy", dy, 2);
  check_tensor("bias_backward", "dy", dy, dy.sizes(), dtype);
  check_gradient("bias_backward", "dbias", dbias, {dy.size(1)}, dtype);
  const ColumnSum all{storage_of(dtype), dy.size(1), dy.const_data_ptr(), nullptr};
  if (dy.is_cuda()) return cuda_kernels().column_sum(all, dy.size(0), cuda_gradient(dbias));
  const RowBlocks blocks(dy.size(0));
  const int64_t partial_bytes = dy.size(1) * static_cast<int64_t>(c10::elementSize(statistics_dtype(dtype)));
  struct Partials;
  char* partials = thread_scratch<Partials, char>(blocks.num_blocks * partial_bytes);
  parallel_rows(blocks.num_blocks, 1, [&](int64_t first_block, int64_t last_block) {
    for (int64_t block = first_block; block < last_block; ++block) {
      ColumnSum arguments = all;
      arguments.sum = std::memset(partials + block * partial_bytes, 0, partial_bytes);
      column_sum_rows(arguments, blocks.first(block), blocks.last(block));
    }
  });
  combine_partials(dbias, partials, blocks.num_blocks);
}

}  // namespace trireme::ops
