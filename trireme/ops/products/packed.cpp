#include "trireme/ops/products/packed.h"
#include "trireme/ops/announce.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/base/processor.h"
#include "trireme/base/round_up.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/products/library.h"
#include "trireme/ops/products/products.h"
#include "trireme/ops/products/team.h"

namespace trireme::ops {
namespace {

/// The kernel whose panels a matrix has; null: its columns follow each other.
const GemmKernel* kernel_of(const PackedMatrix& m) {
  // Matrix units are LibTorch's (products.cpp).
  if (m.bytes.is_cuda() || m.k == 0 || (m.dtype == at::kBFloat16 && base::processor().amx_bf16)) return nullptr;
  for (const GemmKernel* kernel : gemm_kernels(m.dtype))
    if (m.k % kernel->k_multiple == 0) return kernel;
  return nullptr;
}

/// The matrix [N,K] of one whose columns follow each other.
at::Tensor columns_of(const PackedMatrix& m) {
  const int64_t bytes = m.n * m.k * static_cast<int64_t>(c10::elementSize(m.dtype));
  return m.bytes.narrow(0, 0, bytes).view(m.dtype).view({m.n, m.k});
}

void check_packed(const char* operation, const PackedMatrix& m) {
  const int64_t bytes = packed_bytes(m.n, m.k, m.dtype);
  if (m.bytes.scalar_type() != at::kByte || m.bytes.dim() != 1 || m.bytes.numel() != bytes || !m.bytes.is_contiguous())
    throw ShapeError(fmt::format("{}: a packed {} matrix [{}, {}] has {} contiguous bytes, not {} of {}", operation,
                                 c10::toString(m.dtype), m.k, m.n, bytes, m.bytes.numel(),
                                 c10::toString(m.bytes.scalar_type())));
  if (!m.bytes.is_cuda() && reinterpret_cast<uintptr_t>(m.bytes.const_data_ptr()) % 64 != 0)
    throw ShapeError(fmt::format("{}: a packed matrix must begin at a multiple of 64 bytes", operation));
}

void check_pack(const PackedMatrix& to, const at::Tensor& b, int64_t first) {
  check_packed("pack", to);
  if (b.dim() != 2 || b.size(0) != to.k || first < 0 || first + b.size(1) > to.n || b.scalar_type() != to.dtype ||
      !is_matrix(b))
    throw ShapeError(fmt::format(
        "pack: b is {} with {} elements, from column {} on; a packed matrix [{}, {}] takes {} columns with contiguous "
        "rows, or a transposed view of such a tensor",
        c10::toString(b.scalar_type()), b.numel(), first, to.k, to.n, c10::toString(to.dtype)));
}

}  // namespace

void check_packed_product(const at::Tensor& c, const at::Tensor& a, int64_t n, int64_t k, at::ScalarType dtype) {
  if (a.dim() != 2 || c.dim() != 2 || a.size(1) != k || c.size(1) != n || a.size(0) != c.size(0))
    throw ShapeError(
        fmt::format("multiply_packed: a has {} elements, c {}, and b is [{}, {}]; they must be [M, {}] and [M, {}]",
                    a.numel(), c.numel(), k, n, k, n));
  if (a.scalar_type() != dtype || (c.scalar_type() != dtype && !(is_narrow(dtype) && c.scalar_type() == at::kFloat)))
    throw ShapeError(
        fmt::format("multiply_packed: a is {}, b is {} and c is {}; they must be of one dtype, or c float32 from "
                    "bfloat16 or float16",
                    c10::toString(a.scalar_type()), c10::toString(dtype), c10::toString(c.scalar_type())));
  if (!has_rows(a) || !has_rows(c)) throw ShapeError("multiply_packed: the rows of a and c must be contiguous");
}

GemmCall packed_call(const at::Tensor& c, const at::Tensor& a) {
  GemmCall call{};
  call.m = c.size(0), call.n = c.size(1), call.k = a.size(1);
  call.a = a.const_data_ptr(), call.a_ld = a.stride(0);
  call.c = c.mutable_data_ptr(), call.c_ld = c.stride(0);
  call.c_is_float = c.scalar_type() == at::kFloat;
  return call;
}

int64_t packed_bytes(int64_t n, int64_t k, at::ScalarType dtype) {
  return base::round_up(n, 64) * base::round_up(k, 2) * static_cast<int64_t>(c10::elementSize(dtype)) + kPackedTail;
}

void pack_by(const GemmKernel& kernel, const PackedMatrix& to, const at::Tensor& b, int64_t first) {
  check_pack(to, b, first);
  if (b.numel() == 0) return;
  const bool transposed = is_transposed(b);
  const PanelPack pack{.to = to.bytes.mutable_data_ptr(),
                       .n = to.n,
                       .k = to.k,
                       .b = b.const_data_ptr(),
                       .b_ld = b.stride(transposed ? 1 : 0),
                       .b_transposed = transposed,
                       .first = first,
                       .columns = b.size(1)};
  const int64_t begin = first / kernel.panel_columns,
                end = (first + b.size(1) + kernel.panel_columns - 1) / kernel.panel_columns;
  parallel_rows(end - begin, row_grain(to.k * kernel.panel_columns),
                [&](int64_t from, int64_t until) { kernel.pack(pack, begin + from, begin + until, gemm_scratch()); });
}

void pack(const PackedMatrix& to, const at::Tensor& b, int64_t first) {
  check_pack(to, b, first);
  if (const GemmKernel* kernel = kernel_of(to)) return pack_by(*kernel, to, b, first);
  columns_of(to).narrow(0, first, b.size(1)).copy_(b.t());
}

void unpack_columns(const at::Tensor& to, const PackedMatrix& b, const at::Tensor& columns) {
  check_packed("unpack_columns", b);
  check_tensor("unpack_columns", "to", to, {columns.numel(), b.k}, b.dtype);
  check_tensor("unpack_columns", "columns", columns, {columns.numel()}, at::kLong);
  check_ids("unpack_columns", "columns", columns, b.n, -1, [&] { return fmt::format("a matrix of {} columns", b.n); });
  const GemmKernel* kernel = kernel_of(b);
  const int64_t size = static_cast<int64_t>(c10::elementSize(b.dtype)),
                pair = kernel == nullptr ? 1 : kernel->k_multiple;
  const auto* from = static_cast<const char*>(b.bytes.const_data_ptr());
  auto* out = static_cast<char*>(to.data_ptr());
  const auto* ids = columns.data_ptr<int64_t>();
  // A unit of a panel is `pair` elements of one column.
  const int64_t panel = kernel == nullptr ? 1 : kernel->panel_columns, stride = kernel == nullptr ? 1 : panel;
  parallel_rows(columns.numel(), row_grain(b.k), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      char* const row = out + r * b.k * size;
      if (ids[r] < 0) {
        std::memset(row, 0, static_cast<size_t>(b.k * size));
        continue;
      }
      int64_t place = ids[r] % panel;
      if (kernel != nullptr && kernel->swaps_quarters && (place / 4 % 4 == 1 || place / 4 % 4 == 2)) place ^= 12;
      const char* unit = from + (ids[r] / panel * (b.k / pair) * panel + place) * pair * size;
      for (int64_t k = 0; k < b.k; k += pair, unit += stride * pair * size)
        std::memcpy(row + k * size, unit, static_cast<size_t>(pair * size));
    }
  });
}

void multiply_packed_by(const GemmKernel& kernel, const at::Tensor& c, const at::Tensor& a, const PackedMatrix& b) {
  check_packed("multiply_packed", b);
  check_packed_product(c, a, b.n, b.k, b.dtype);
  if (c.numel() == 0) return;
  GemmCall call = packed_call(c, a);
  call.panels = b.bytes.const_data_ptr();
  run_panel_team(kernel, call);
}

void multiply_packed(const at::Tensor& c, const at::Tensor& a, const PackedMatrix& b) {
  const Announced announced([&] { return product_operation("packed_product", c, a, b.n); });
  if (announced.skipped()) return;
  if (const GemmKernel* kernel = kernel_of(b)) {
    const base::Metered metered(base::Activity::products);
    return multiply_packed_by(*kernel, c, a, b);
  }
  check_packed("multiply_packed", b);
  check_packed_product(c, a, b.n, b.k, b.dtype);
  multiply(c, a, columns_of(b).t());
}

}  // namespace trireme::ops
