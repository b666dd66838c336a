// Columns with factors of their own, and the norms that these factors are divided by: what DoRA needs beside products.
#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/ops/announce.h"
#include "trireme/ops/blocks/squares.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/elementwise/magnitude_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/products/products.h"

namespace trireme::ops {

void scale_columns(const at::Tensor& y, const at::Tensor& x, const at::Tensor& factors, double shift, bool adds) {
  const auto dtype = compute_dtype("scale_columns", "x", x);
  check_dims("scale_columns", "x", x, 2);
  check_rows_view("scale_columns", "x", x, x.sizes(), dtype);
  check_rows_view("scale_columns", "y", y, x.sizes(), dtype);
  check_tensor("scale_columns", "factors", factors, {x.size(1)}, statistics_dtype(dtype));
  const Announced announced([&] { return row_operation("scale_columns", dtype, x.size(0), x.size(1), {&y, &x}); });
  if (announced.skipped()) return;
  const ScaleColumnsArguments arguments{.dtype = storage_of(dtype),
                                        .width = x.size(1),
                                        .y = y.mutable_data_ptr(),
                                        .y_stride = y.stride(0),
                                        .x = x.const_data_ptr(),
                                        .x_stride = x.stride(0),
                                        .factors = factors.const_data_ptr(),
                                        .shift = shift,
                                        .adds = adds};
  run_rows(scale_columns_rows, arguments, x.size(0), x.size(1));
}

void merged_squares(const at::Tensor& squares, const at::Tensor& w, const at::Tensor& b, const at::Tensor& a,
                    double scale, bool in_out, const at::Tensor& wide) {
  const auto dtype = compute_dtype("merged_squares", "w", w);
  check_dims("merged_squares", "w", w, 2);
  check_tensor("merged_squares", "w", w, w.sizes(), dtype);
  check_dims("merged_squares", "a", a, 2);
  check_tensor("merged_squares", "a", a, {a.size(0), w.size(in_out ? 0 : 1)}, dtype);
  check_tensor("merged_squares", "b", b, {w.size(in_out ? 1 : 0), a.size(0)}, dtype);
  check_tensor("merged_squares", "squares", squares, {b.size(0)}, statistics_dtype(dtype));
  check_tensor("merged_squares", "wide", wide, wide.sizes(), statistics_dtype(dtype));
  const int64_t rows = w.size(0), width = w.size(1), chunk = std::min(rows, wide.numel() / width);
  if (chunk < 1) throw ShapeError("merged_squares: `wide` is smaller than one row");
  const Announced announced([&] {
    return Operation{.name = "merged_squares",
                     .dtype = dtype,
                     .m = rows,
                     .n = width,
                     .k = a.size(0),
                     .flops = 2 * double(rows) * double(width) * double(a.size(0)),
                     .bytes = bytes_of({&w, &a, &b})};
  });
  if (announced.skipped()) return;
  if (in_out) at::Tensor(squares).zero_();
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t count = std::min(chunk, rows - first);
    const at::Tensor part = wide.narrow(0, 0, count * width).view({count, width});
    if (in_out)
      multiply(part, a.narrow(1, first, count).t(), b.t());
    else
      multiply(part, b.narrow(0, first, count), a);
    const MergedSquaresArguments arguments{
        .dtype = storage_of(dtype),
        .rows = count,
        .width = width,
        .w = w.narrow(0, first, count).const_data_ptr(),
        .p = part.const_data_ptr(),
        .scale = scale,
        .sums = squares.narrow(0, in_out ? 0 : first, in_out ? width : count).mutable_data_ptr(),
        .by_columns = in_out};
    const int64_t blocks = (width + arguments.kColumns - 1) / arguments.kColumns;
    in_out ? run_rows(merged_squares_rows, arguments, blocks, count * arguments.kColumns)
           : run_rows(merged_squares_rows, arguments, count, width);
  }
}

void merged_squares(const at::Tensor& squares, const BlockMatrix& w, const at::Tensor& b, const at::Tensor& a,
                    double scale, const at::Tensor& wide) {
  const int64_t chunk = std::min(w.rows, wide.numel() / w.columns);
  if (chunk < 1) throw ShapeError("merged_squares: `wide` is smaller than one row");
  struct Widened;
  char* memory = thread_scratch<Widened, char>(chunk * w.columns * static_cast<int64_t>(a.element_size()));
  for (int64_t first = 0; first < w.rows; first += chunk) {
    const int64_t count = std::min(chunk, w.rows - first);
    const at::Tensor rows = at::from_blob(memory, {count, w.columns}, a.options());
    widen(rows, w, first);
    merged_squares(squares.narrow(0, first, count), rows, b.narrow(0, first, count), a, scale, false, wide);
  }
}

}  // namespace trireme::ops
