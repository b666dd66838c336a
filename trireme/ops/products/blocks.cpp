// Products with a matrix in blocks, and what else reads its elements.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/base/processor.h"
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/products/library.h"
#include "trireme/ops/products/products.h"
#include "trireme/ops/products/team.h"

namespace trireme::ops {
namespace {

constexpr int64_t kWidenedElements = 1 << 20;  // at once, where LibTorch multiplies

WidenRows widening(const BlockMatrix& b, at::ScalarType dtype) {
  if (b.numbers && dtype != at::kDouble)
    return dtype == at::kFloat ? kWidenNumbersFloat : dtype == at::kHalf ? kWidenNumbersHalf : kWidenNumbersBfloat16;
#if defined(__x86_64__)
  if (base::processor().avx512 && dtype != at::kDouble)
    return dtype == at::kFloat ? kWidenFloatAvx512 : dtype == at::kHalf ? kWidenHalfAvx512 : kWidenBfloat16Avx512;
#endif
  return dtype == at::kDouble  ? kWidenDouble
         : dtype == at::kFloat ? kWidenFloat
         : dtype == at::kHalf  ? kWidenHalf
                               : kWidenBfloat16;
}

void check_blocks(const at::Tensor& c, const at::Tensor& a, const BlockMatrix& b, bool transposed) {
  const int64_t k = transposed ? b.columns : b.rows, n = transposed ? b.rows : b.columns;
  if (a.dim() != 2 || c.dim() != 2 || a.size(1) != k || c.size(1) != n || a.size(0) != c.size(0))
    throw ShapeError(
        fmt::format("multiply_blocks: a has {} elements, c {}, and b is [{}, {}]{}; they must be [M, {}] and [M, {}]",
                    a.numel(), c.numel(), b.rows, b.columns, transposed ? ", transposed" : "", k, n));
  if (a.is_cuda()) throw Error("weights in blocks are multiplied on processors only");
  if (a.scalar_type() != c.scalar_type() && !(is_narrow(a.scalar_type()) && c.scalar_type() == at::kFloat))
    throw ShapeError("multiply_blocks: a and c must be of one dtype, or c float32");
  if (!has_rows(c)) throw ShapeError("multiply_blocks: the rows of c must be contiguous");
}

std::optional<GemmCall> gemm_call(const GemmKernel& kernel, const at::Tensor& c, const at::Tensor& a,
                                  const BlockMatrix& b, bool transposed) {
  if (a.size(1) % kernel.k_multiple != 0 || a.size(1) == 0 || c.numel() == 0 || !is_matrix(a)) return std::nullopt;
  const bool a_transposed = is_transposed(a), to_float = b.numbers && kernel.k_multiple == 1;
  return GemmCall{.m = c.size(0),
                  .n = c.size(1),
                  .k = a.size(1),
                  .a = a.const_data_ptr(),
                  .a_ld = a_transposed ? a.stride(1) : a.stride(0),
                  .a_transposed = a_transposed,
                  .b = nullptr,
                  .b_ld = 0,
                  .b_transposed = transposed,
                  .c = c.mutable_data_ptr(),
                  .c_ld = c.stride(0),
                  .accumulate = false,
                  .c_is_float = c.scalar_type() == at::kFloat,
                  .blocks = &b,
                  .widen = widening(b, to_float ? at::kFloat : a.scalar_type()),
                  .widened_to_float = to_float};
}

void multiply_in_pieces(const at::Tensor& c, const at::Tensor& a, const BlockMatrix& b, bool transposed) {
  const int64_t k = a.size(1), step = std::max<int64_t>(2, kWidenedElements / std::max<int64_t>(1, k) / 2 * 2);
  const WidenRows rows = widening(b, a.scalar_type());
  const auto bytes = static_cast<int64_t>(a.element_size());
  struct Widened;
  char* memory = thread_scratch<Widened, char>(std::min(step, c.size(1)) * k * bytes);
  for (int64_t n = 0; n < c.size(1); n += step) {
    const int64_t count = std::min(step, c.size(1) - n);
    const at::Tensor part =
        at::from_blob(memory, transposed ? at::IntArrayRef{count, k} : at::IntArrayRef{k, count}, a.options());
    const int64_t height = transposed ? count : k, width = transposed ? k : count;
    parallel_rows(height, row_grain(width), [&](int64_t first, int64_t last) {
      char* to = memory + first * width * bytes;
      transposed ? rows(b, n + first, last - first, 0, k, to, k) : rows(b, first, last - first, n, count, to, count);
    });
    multiply(c.narrow(1, n, count), a, transposed ? part.t() : part);
  }
}

}  // namespace

bool multiply_blocks_by(const GemmKernel& kernel, const at::Tensor& c, const at::Tensor& a, const BlockMatrix& b,
                        bool transposed) {
  check_blocks(c, a, b, transposed);
  const auto call = gemm_call(kernel, c, a, b, transposed);
  if (call) run_team(kernel, *call);
  return call.has_value();
}

void multiply_blocks(const at::Tensor& c, const at::Tensor& a, const BlockMatrix& b, bool transposed) {
  check_blocks(c, a, b, transposed);
  const Announced announced([&] { return product_operation("blocks_product", c, a, c.size(1)); });
  if (announced.skipped()) return;
  // Matrix units are LibTorch's (products.cpp).
  if (a.scalar_type() == at::kBFloat16 && base::processor().amx_bf16) return multiply_in_pieces(c, a, b, transposed);
  for (const GemmKernel* kernel : gemm_kernels(a.scalar_type()))
    if (const auto call = gemm_call(*kernel, c, a, b, transposed)) {
      const base::Metered metered(base::Activity::products);
      return run_team(*kernel, *call);
    }
  multiply_in_pieces(c, a, b, transposed);
}

void widen(const at::Tensor& to, const BlockMatrix& matrix, int64_t row) {
  if (to.dim() != 2 || to.size(1) != matrix.columns || row + to.size(0) > matrix.rows || !has_rows(to))
    throw ShapeError("widen: the rows must be among the matrix's, and contiguous");
  const Announced announced([&] { return row_operation("widen", to.scalar_type(), to.size(0), to.size(1), {&to}); });
  if (announced.skipped()) return;
  widening(matrix, to.scalar_type())(matrix, row, to.size(0), 0, matrix.columns, to.mutable_data_ptr(), to.stride(0));
}

}  // namespace trireme::ops
