// Folding gradients into a buffer of the same or a wider type.
#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cross_entropy_kernels.h"
#include "trireme/ops/elementwise_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

constexpr int64_t kWidth = 1024;  // any shape is taken in rows of this many elements, and one shorter row at the end

/// sum += x for `rows` rows of `width` elements.
void accumulate_piece(at::ScalarType sum_dtype, at::ScalarType dtype, char* sum, const char* x, int64_t rows,
                      int64_t width) {
  const Storage storage = storage_of(dtype);
  parallel_rows(rows, row_grain(width), [&](int64_t first, int64_t last) {
    if (sum_dtype == dtype) {
      add_rows({storage, width, sum, sum, x, width}, first, last);
    } else if (sum_dtype == statistics_dtype(dtype)) {
      accumulate_rows({storage, width, sum, x}, first, last);
    } else {  // float64 sums of narrower elements: not on a training step's path, left to the compiler
      with_storage(storage, [&]<class T>() {
        const T* from = reinterpret_cast<const T*>(x);
        auto* to = reinterpret_cast<double*>(sum);
        for (int64_t i = first * width; i < last * width; ++i) to[i] += static_cast<double>(widen(from[i]));
      });
    }
  });
}

}  // namespace

void accumulate(const at::Tensor& sum, const at::Tensor& x) {
  constexpr auto kOperation = "accumulate";
  const auto dtype = compute_dtype(kOperation, "x", x), sum_dtype = compute_dtype(kOperation, "sum", sum);
  check_tensor(kOperation, "x", x, x.sizes(), dtype);
  if (sum_dtype != dtype && sum_dtype != at::kDouble)
    check_tensor(kOperation, "sum", sum, x.sizes(), statistics_dtype(dtype));
  check_tensor(kOperation, "sum", sum, x.sizes(), sum_dtype);
  if (sum.is_cuda()) {
    at::Tensor(sum).add_(x);
    return;
  }
  char* to = static_cast<char*>(sum.mutable_data_ptr());
  const char* from = static_cast<const char*>(x.const_data_ptr());
  const int64_t rows = x.numel() / kWidth, rest = x.numel() % kWidth;
  accumulate_piece(sum_dtype, dtype, to, from, rows, kWidth);
  if (rest == 0) return;
  const int64_t done = rows * kWidth;
  accumulate_piece(sum_dtype, dtype, to + done * static_cast<int64_t>(sum.element_size()),
                   from + done * static_cast<int64_t>(x.element_size()), 1, rest);
}

void write_gradient(const Gradient& gradient, const at::Tensor& x) {
  if (gradient.accumulate) return accumulate(gradient.to, x);
  at::Tensor(gradient.to).copy_(x);
}

}  // namespace trireme::ops
