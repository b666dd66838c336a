// RMSNorm and LayerNorm: one template; RMSNorm is the case without mean and bias. A row is read from memory once and
// stays in the first-level cache for its later passes. The backward recomputes the normalised row from x, mean and
// rstd, so that computing y again costs little.

#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/norm/norm_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/simd/past_caches.h"
#include "trireme/ops/simd/row_sums.h"

namespace trireme::ops {
namespace {

struct RowsShape {
  int64_t rows, width;
  at::ScalarType dtype, statistics;
};

RowsShape check_rows(const char* operation, const at::Tensor& x, const at::Tensor& w) {
  const auto dtype = compute_dtype(operation, "x", x);
  check_dims(operation, "x", x, 2);
  const RowsShape shape{x.size(0), x.size(1), dtype, statistics_dtype(dtype)};
  check_tensor(operation, "x", x, {shape.rows, shape.width}, dtype);
  check_tensor(operation, "w", w, {shape.width}, dtype);
  return shape;
}

const void* pointer(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }
void* mutable_pointer(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

/// All four forwards. `sum` and `residual` are undefined without an addition, `mean` and `b` for RMSNorm.
void forward(const char* operation, const at::Tensor& sum, const at::Tensor& y, const at::Tensor& mean,
             const at::Tensor& rstd, const at::Tensor& x, const at::Tensor& residual, const at::Tensor& w,
             const at::Tensor& b, double eps, double weight_offset, bool centered) {
  const RowsShape shape = check_rows(operation, x, w);
  check_tensor(operation, "y", y, x.sizes(), shape.dtype);
  check_tensor(operation, "rstd", rstd, {shape.rows}, shape.statistics);
  if (centered) {
    check_tensor(operation, "mean", mean, {shape.rows}, shape.statistics);
    check_tensor(operation, "b", b, {shape.width}, shape.dtype);
  }
  const Announced announced([&] {
    return row_operation(centered ? "layer_norm_forward" : "rms_norm_forward", shape.dtype, shape.rows, shape.width,
                         {&sum, &y, &x, &residual});
  });
  if (announced.skipped()) return;
  NormForward all{.dtype = storage_of(shape.dtype),
                  .width = shape.width,
                  .eps = eps,
                  .weight_offset = weight_offset,
                  .sum = mutable_pointer(sum),
                  .y = mutable_pointer(y),
                  .mean = mutable_pointer(mean),
                  .rstd = mutable_pointer(rstd),
                  .x = pointer(x),
                  .residual = pointer(residual),
                  .w = pointer(w),
                  .b = pointer(b)};
  if (y.is_cuda())
    return centered ? cuda_kernels().layer_norm_forward(all, shape.rows)
                    : cuda_kernels().rms_norm_forward(all, shape.rows);
  all.past_caches = past_caches(y, shape.width, pointer(x), pointer(residual)) &&
                    (!sum.defined() || past_caches(sum, shape.width, pointer(x), pointer(residual)));
  const int64_t kept_bytes = all.past_caches && sum.defined() ? 2 * shape.width * y.element_size() : 0;
  parallel_rows(shape.rows, row_grain(shape.width), [&](int64_t first, int64_t last) {
    struct Kept;
    NormForward arguments = all;
    if (kept_bytes > 0) arguments.kept = thread_scratch<Kept, char>(kept_bytes);
    centered ? layer_norm_forward_rows(arguments, first, last) : rms_norm_forward_rows(arguments, first, last);
  });
}

/// Both backwards. `db`, `b` and `mean` are undefined for RMSNorm.
void backward(const char* operation, const at::Tensor& dx, const Gradient& dw, const Gradient& db, const at::Tensor& y,
              const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
              const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& d_residual, double weight_offset,
              bool centered) {
  const RowsShape shape = check_rows(operation, x, w);
  check_tensor(operation, "dx", dx, x.sizes(), shape.dtype);
  check_tensor(operation, "y", y, x.sizes(), shape.dtype);
  check_tensor(operation, "dy", dy, x.sizes(), shape.dtype);
  if (d_residual.defined()) check_tensor(operation, "d_residual", d_residual, x.sizes(), shape.dtype);
  check_gradient(operation, "dw", dw, {shape.width}, shape.dtype);
  check_tensor(operation, "rstd", rstd, {shape.rows}, shape.statistics);
  if (centered) {
    check_gradient(operation, "db", db, {shape.width}, shape.dtype);
    check_tensor(operation, "b", b, {shape.width}, shape.dtype);
    check_tensor(operation, "mean", mean, {shape.rows}, shape.statistics);
  }
  const Announced announced([&] {
    return row_operation(centered ? "layer_norm_backward" : "rms_norm_backward", shape.dtype, shape.rows, shape.width,
                         {&dx, &y, &dy, &x, &d_residual});
  });
  if (announced.skipped()) return;
  NormBackward all{.dtype = storage_of(shape.dtype),
                   .width = shape.width,
                   .weight_offset = weight_offset,
                   .dx = mutable_pointer(dx),
                   .y = mutable_pointer(y),
                   .dy = pointer(dy),
                   .x = pointer(x),
                   .w = pointer(w),
                   .b = pointer(b),
                   .mean = pointer(mean),
                   .rstd = pointer(rstd),
                   .d_residual = pointer(d_residual)};
  if (dx.is_cuda())
    return centered ? cuda_kernels().layer_norm_backward(all, shape.rows, cuda_gradient(dw), cuda_gradient(db))
                    : cuda_kernels().rms_norm_backward(all, shape.rows, cuda_gradient(dw));
  all.past_caches =
      past_caches(dx, shape.width, pointer(x), pointer(dy)) && past_caches(y, shape.width, pointer(x), pointer(dy)) &&
      past_caches(dx, shape.width, pointer(d_residual)) && past_caches(y, shape.width, pointer(d_residual));
  sum_rows({&dw, &db}, shape.rows, shape.width, shape.statistics, [&](int64_t first, int64_t last, void* const* sums) {
    NormBackward arguments = all;
    arguments.dw_sum = sums[0], arguments.db_sum = sums[1];
    centered ? layer_norm_backward_rows(arguments, first, last) : rms_norm_backward_rows(arguments, first, last);
  });
}

void check_addends(const char* operation, const at::Tensor& sum, const at::Tensor& x, const at::Tensor& residual) {
  const auto dtype = compute_dtype(operation, "x", x);
  check_tensor(operation, "sum", sum, x.sizes(), dtype);
  check_tensor(operation, "residual", residual, x.sizes(), dtype);
}

}  // namespace

void rms_norm_forward(const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& x, const at::Tensor& w, double eps,
                      double weight_offset) {
  forward("rms_norm_forward", {}, y, {}, rstd, x, {}, w, {}, eps, weight_offset, false);
}

void add_rms_norm_forward(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& x,
                          const at::Tensor& residual, const at::Tensor& w, double eps, double weight_offset) {
  check_addends("add_rms_norm_forward", sum, x, residual);
  forward("add_rms_norm_forward", sum, y, {}, rstd, x, residual, w, {}, eps, weight_offset, false);
}

void rms_norm_backward(const at::Tensor& dx, const Gradient& dw, const at::Tensor& y, const at::Tensor& dy,
                       const at::Tensor& x, const at::Tensor& w, const at::Tensor& rstd, const at::Tensor& d_residual,
                       double weight_offset) {
  backward("rms_norm_backward", dx, dw, {}, y, dy, x, w, {}, {}, rstd, d_residual, weight_offset, false);
}

void layer_norm_forward(const at::Tensor& y, const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& x,
                        const at::Tensor& w, const at::Tensor& b, double eps) {
  forward("layer_norm_forward", {}, y, mean, rstd, x, {}, w, b, eps, 0, true);
}

void add_layer_norm_forward(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& mean, const at::Tensor& rstd,
                            const at::Tensor& x, const at::Tensor& residual, const at::Tensor& w, const at::Tensor& b,
                            double eps) {
  check_addends("add_layer_norm_forward", sum, x, residual);
  forward("add_layer_norm_forward", sum, y, mean, rstd, x, residual, w, b, eps, 0, true);
}

void layer_norm_backward(const at::Tensor& dx, const Gradient& dw, const Gradient& db, const at::Tensor& y,
                         const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
                         const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& d_residual) {
  backward("layer_norm_backward", dx, dw, db, y, dy, x, w, b, mean, rstd, d_residual, 0, true);
}

}  // namespace trireme::ops
