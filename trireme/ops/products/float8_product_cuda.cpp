// Products of 8 bits by cuBLASLt. It multiplies such matrices in one layout only: rows of a and columns of b, both
// along K. As columns are its rows, c^T = b^T a^T needs b^T with the rows of its transpose, and a as it is.
#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/cuda/tuned_product.h"
#include "trireme/ops/products/float8_cuda.h"

namespace trireme::ops::cuda {
namespace {

Product::Format format_of(Float8 format) {
  return format == Float8::e4m3 ? Product::Format::e4m3 : Product::Format::e5m2;
}

/// `lines` is the operand as lines along K, a [M, K] or b^T [N, K]; they may lie across the memory's rows.
void round_lines(uint8_t* to, Float8Figures* figures, const at::Tensor& lines, Float8 format) {
  const bool transposed = lines.stride(1) != 1;
  const int64_t stride = lines.stride(transposed ? 1 : 0);
  if (stride % 8 != 0 || reinterpret_cast<uintptr_t>(lines.const_data_ptr()) % 16 != 0)
    throw ShapeError("multiply_float8: rows on a GPU begin at multiples of 16 bytes");
  round_to_float8(to, figures, lines.const_data_ptr(), lines.size(transposed ? 1 : 0), lines.size(transposed ? 0 : 1),
                  stride, format, transposed);
}

}  // namespace

void Kernels::multiply_float8(const at::Tensor& c, const Float8Operand& a, const Float8Operand& b,
                              const at::Tensor& scratch, const at::Tensor& addend) const {
  const int64_t m = c.size(0), n = c.size(1), k = a.matrix.size(1);
  auto* figures = static_cast<Float8Figures*>(scratch.mutable_data_ptr());
  auto* left = static_cast<uint8_t*>(scratch.mutable_data_ptr()) + kFloat8Figures;
  uint8_t* right = left + m * k;
  round_lines(left, figures, a.matrix, a.format);
  round_lines(right, figures + 1, b.matrix.t(), b.format);
  const Product product{.m = n,
                        .n = m,
                        .k = k,
                        .a_transposed = true,
                        .b_transposed = false,
                        .wide = c.scalar_type() == at::kFloat,
                        .accumulate = addend.defined(),
                        .a_ld = k,
                        .b_ld = k,
                        .c_ld = n,
                        .a_format = format_of(b.format),
                        .b_format = format_of(a.format)};
  const void* added = addend.defined() ? addend.const_data_ptr() : c.const_data_ptr();
  if (!tuned_product(product, right, left, added, c.mutable_data_ptr(), {&figures[1].scale, &figures[0].scale}))
    throw Error(
        "[cuda] this GPU multiplies no numbers of 8 bits, which need compute capability 8.9 or later; set "
        "precision bf16-mixed");
}

}  // namespace trireme::ops::cuda
