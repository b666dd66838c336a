// Dropout whose mask is a function of counters, and the product that is added to a tensor: what adapters need beside
// products.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/elementwise/dropout_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/products/products.h"
#include "trireme/ops/storage.h"

namespace trireme::ops {
namespace {

void set_mask(DropoutArguments& arguments, const DropoutMask& mask, int64_t first_row) {
  if (mask.p == 0) return;
  arguments.keys = reinterpret_cast<const uint32_t*>(mask.keys.data_ptr<int32_t>()) + first_row;
  arguments.threshold = static_cast<uint32_t>(std::min(std::ceil(mask.p * 0x1p32), 0x1p32 - 1));
  arguments.factor = 1 / (1 - mask.p);
  arguments.first_column = mask.first_column;
}

void check_mask(const char* operation, const DropoutMask& mask, int64_t rows) {
  if (mask.p == 0) return;
  if (!(mask.p > 0 && mask.p < 1)) throw ShapeError(std::string(operation) + ": p is not in [0, 1)");
  check_tensor(operation, "keys", mask.keys, {rows}, at::kInt);
}

}  // namespace

void dropout_forward(const at::Tensor& y, const at::Tensor& x, const DropoutMask& mask) {
  const auto dtype = compute_dtype("dropout_forward", "x", x);
  check_dims("dropout_forward", "x", x, 2);
  check_tensor("dropout_forward", "x", x, x.sizes(), dtype);
  check_tensor("dropout_forward", "y", y, x.sizes(), dtype);
  check_mask("dropout_forward", mask, x.size(0));
  const Announced announced([&] { return row_operation("dropout_forward", dtype, x.size(0), x.size(1), {&y, &x}); });
  if (announced.skipped()) return;
  DropoutArguments arguments{.dtype = storage_of(dtype),
                             .width = x.size(1),
                             .y = y.mutable_data_ptr(),
                             .y_stride = x.size(1),
                             .x = x.const_data_ptr()};
  set_mask(arguments, mask, 0);
  run_rows(dropout_rows, arguments, x.size(0), x.size(1));
}

namespace {

// lowbias32 (Ettinger 2018), as in dropout_kernels.cpp.
uint32_t hash_of(uint32_t key, int64_t column) {
  uint32_t h = key + static_cast<uint32_t>(column) * 0x9E3779B9u;
  h = (h ^ h >> 16) * 0x7feb352du;
  h = (h ^ h >> 15) * 0x846ca68bu;
  return h ^ h >> 16;
}

struct NoiseArguments {
  Storage dtype;
  int64_t width;
  void* y;
  const uint32_t* keys;
  double bound;
};

void noise_rows(const NoiseArguments& args, int64_t first, int64_t last) {
  with_storage(args.dtype, [&]<class T>() {
    for (int64_t t = first; t < last; ++t) {
      T* const row = static_cast<T*>(args.y) + t * args.width;
      for (int64_t j = 0; j < args.width; ++j) {
        const double u = 0x1p-31 * hash_of(args.keys[t], j) - 1;
        row[j] = narrow<T>(static_cast<Wide<T>>(widen(row[j]) + args.bound * u));
      }
    }
  });
}

}  // namespace

void add_uniform_noise(const at::Tensor& y, const at::Tensor& keys, double bound) {
  const auto dtype = compute_dtype("add_uniform_noise", "y", y);
  check_dims("add_uniform_noise", "y", y, 2);
  check_tensor("add_uniform_noise", "y", y, y.sizes(), dtype);
  check_tensor("add_uniform_noise", "keys", keys, {y.size(0)}, at::kInt);
  const Announced announced([&] { return row_operation("add_uniform_noise", dtype, y.size(0), y.size(1), {&y, &y}); });
  if (announced.skipped()) return;
  const NoiseArguments arguments{.dtype = storage_of(dtype),
                                 .width = y.size(1),
                                 .y = y.mutable_data_ptr(),
                                 .keys = reinterpret_cast<const uint32_t*>(keys.data_ptr<int32_t>()),
                                 .bound = bound};
  run_rows(noise_rows, arguments, y.size(0), y.size(1));
}

void add_product(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b, const at::Tensor& wide,
                 const DropoutMask& mask) {
  const auto dtype = compute_dtype("add_product", "y", y);
  check_dims("add_product", "y", y, 2);
  check_rows_view("add_product", "y", y, y.sizes(), dtype);
  check_mask("add_product", mask, y.size(0));
  const Announced announced([&] { return product_operation("add_product", y, a, b.size(1)); });
  if (announced.skipped()) return;
  if (mask.p == 0 && y.is_cuda()) return static_cast<void>(at::Tensor(y).addmm_(a, b));
  if (mask.p == 0 && !is_narrow(dtype)) return multiply(y, a, b, true);
  check_tensor("add_product", "wide", wide, wide.sizes(), statistics_dtype(dtype));
  const int64_t rows = y.size(0), width = y.size(1), chunk = std::min(rows, wide.numel() / width);
  if (chunk < 1) throw ShapeError("add_product: `wide` is smaller than one row");
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t count = std::min(chunk, rows - first);
    const at::Tensor part = wide.narrow(0, 0, count * width).view({count, width});
    multiply(part, a.narrow(0, first, count), b);
    DropoutArguments arguments{.dtype = storage_of(dtype),
                               .width = width,
                               .y = y.narrow(0, first, count).mutable_data_ptr(),
                               .y_stride = y.stride(0),
                               .x = part.const_data_ptr(),
                               .adds = true};
    set_mask(arguments, mask, first);
    run_rows(dropout_rows, arguments, count, width);
  }
}

}  // namespace trireme::ops
