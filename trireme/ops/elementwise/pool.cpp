#include "trireme/ops/elementwise/pool.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/storage.h"

namespace trireme::ops {
namespace {

constexpr int64_t kColumns = 64;  // summed at a time

const int64_t* checked_ranges(const char* operation, const at::Tensor& of_sequences, const at::Tensor& rows,
                              const at::Tensor& ranges) {
  const auto dtype = compute_dtype(operation, "x", rows);
  check_dims(operation, "x", rows, 2);
  check_tensor(operation, "x", rows, rows.sizes(), dtype);
  check_tensor(operation, "ranges", ranges, {ranges.size(0), 2}, at::kLong);
  check_tensor(operation, "y", of_sequences, {ranges.size(0), rows.size(1)}, dtype);
  if (!rows.is_cpu()) throw ShapeError(fmt::format("{} runs on processors only", operation));
  const int64_t* range = ranges.data_ptr<int64_t>();
  for (int64_t b = 0; b < ranges.size(0); ++b)
    if (range[2 * b] < 0 || range[2 * b + 1] <= range[2 * b] || range[2 * b + 1] > rows.size(0))
      throw ShapeError(fmt::format("{}: range {} is {} to {}, it must hold at least one of the {} rows", operation, b,
                                   range[2 * b], range[2 * b + 1], rows.size(0)));
  return range;
}

}  // namespace

void pool_forward(const at::Tensor& y, const at::Tensor& x, const at::Tensor& ranges) {
  const int64_t* range = checked_ranges("pool", y, x, ranges);
  const int64_t width = x.size(1);
  with_storage(storage_of(x.scalar_type()), [&]<class T>() {
    const T* from = static_cast<const T*>(x.const_data_ptr());
    T* to = static_cast<T*>(y.mutable_data_ptr());
    parallel_rows(y.size(0), 1, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b)
        for (int64_t column = 0; column < width; column += kColumns) {
          const int64_t count = std::min(kColumns, width - column);
          Wide<T> sums[kColumns] = {};
          for (int64_t row = range[2 * b]; row < range[2 * b + 1]; ++row)
            for (int64_t j = 0; j < count; ++j) sums[j] += widen(from[row * width + column + j]);
          const auto rows = static_cast<Wide<T>>(range[2 * b + 1] - range[2 * b]);
          for (int64_t j = 0; j < count; ++j) to[b * width + column + j] = narrow<T>(sums[j] / rows);
        }
    });
  });
}

void pool_backward(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& ranges) {
  const int64_t* range = checked_ranges("pool_backward", dy, dx, ranges);
  const int64_t width = dx.size(1);
  at::Tensor(dx).zero_();
  with_storage(storage_of(dx.scalar_type()), [&]<class T>() {
    const T* from = static_cast<const T*>(dy.const_data_ptr());
    T* to = static_cast<T*>(dx.mutable_data_ptr());
    parallel_rows(dy.size(0), 1, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        const auto rows = static_cast<Wide<T>>(range[2 * b + 1] - range[2 * b]);
        for (int64_t row = range[2 * b]; row < range[2 * b + 1]; ++row)
          for (int64_t j = 0; j < width; ++j) to[row * width + j] = narrow<T>(widen(from[b * width + j]) / rows);
      }
    });
  });
}

}  // namespace trireme::ops
