// Matrix products by cuBLAS, which stores matrices by columns: c = a b by rows is c^T = b^T a^T by columns in the same
// memory. So a and b change places.
#include <ATen/cuda/CUDAContextLight.h>
#include <cublas_v2.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/cuda/tuned_product.h"

namespace trireme::ops::cuda {
namespace {

std::string sizes_text(const at::Tensor& x) {
  return std::string("[").append(std::to_string(x.size(0)) + ", " + std::to_string(x.size(1)) + "] with strides (" +
                                 std::to_string(x.stride(0)) + ", " + std::to_string(x.stride(1)) + ")");
}

/// A matrix as cuBLAS reads it. If cuBLAS reads contiguous rows as columns, it sees the transpose, which the product by
/// columns needs.
struct Operand {
  cublasOperation_t operation;
  int64_t ld;
};

Operand operand(const char* name, const at::Tensor& x) {
  const bool transposed = x.stride(1) != 1 && x.stride(0) == 1;
  const int64_t inner = x.size(transposed ? 0 : 1), outer = x.size(transposed ? 1 : 0);
  // With one row (or column) the stride has no meaning.
  const int64_t ld = outer == 1 ? inner : x.stride(transposed ? 1 : 0);
  if ((!transposed && x.stride(1) != 1 && x.size(1) != 1) || ld < inner)
    throw ShapeError(std::string("multiply: ") + name + " is " + sizes_text(x) +
                     "; its rows, or those of its transpose, must be contiguous");
  return {transposed ? CUBLAS_OP_T : CUBLAS_OP_N, ld};
}

cudaDataType_t type_of(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? CUDA_R_64F : x.scalar_type() == at::kFloat ? CUDA_R_32F : CUDA_R_16BF;
}

void check(cublasStatus_t status, const at::Tensor& c, const at::Tensor& a, const at::Tensor& b) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(std::string("[cuda] multiply: cuBLAS says ") + cublasGetStatusString(status) + " to c " + sizes_text(c) +
              " = a " + sizes_text(a) + " times b " + sizes_text(b) + " of " + c10::toString(a.scalar_type()));
}

/// c = a b by rows is the product of b and a by columns.
Product product_of(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  const Operand left = operand("a", a), right = operand("b", b);
  return {.m = c.size(1),
          .n = c.size(0),
          .k = a.size(1),
          .a_transposed = right.operation == CUBLAS_OP_T,
          .b_transposed = left.operation == CUBLAS_OP_T,
          .wide = c.scalar_type() == at::kFloat,
          .accumulate = accumulate,
          .a_ld = right.ld,
          .b_ld = left.ld,
          .c_ld = c.size(0) == 1 ? c.size(1) : c.stride(0)};
}

}  // namespace

bool Kernels::multiply_onto(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
                            const at::Tensor& addend) const {
  const bool fits =
      a.scalar_type() == at::kBFloat16 && c.numel() > 0 && a.size(1) > 0 && c.is_contiguous() && addend.is_contiguous();
  return fits && tuned_product(product_of(c, a, b, /*accumulate=*/true), b.const_data_ptr(), a.const_data_ptr(),
                               addend.const_data_ptr(), c.mutable_data_ptr());
}

void Kernels::multiply(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) const {
  const int64_t m = c.size(0), n = c.size(1), k = a.size(1);
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!accumulate) at::Tensor(c).zero_();
    return;
  }
  const Operand left = operand("a", a), right = operand("b", b);
  const int64_t c_ld = m == 1 ? n : c.stride(0);
  if (a.scalar_type() == at::kBFloat16 && tuned_product(product_of(c, a, b, accumulate), b.const_data_ptr(),
                                                        a.const_data_ptr(), c.const_data_ptr(), c.mutable_data_ptr()))
    return;
  const cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();
  // Neither TF32 nor partial sums rounded to bfloat16. ATen sets its own mode whenever it takes the handle.
  check(cublasSetMathMode(
            handle, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
        c, a, b);
  const bool doubles = a.scalar_type() == at::kDouble;
  const double one = 1, beta = accumulate ? 1 : 0;
  const float one_float = 1, beta_float = accumulate ? 1 : 0;
  const void* alphas = doubles ? static_cast<const void*>(&one) : &one_float;
  const void* betas = doubles ? static_cast<const void*>(&beta) : &beta_float;
  check(cublasGemmEx_64(handle, right.operation, left.operation, n, m, k, alphas, b.const_data_ptr(), type_of(b),
                        right.ld, a.const_data_ptr(), type_of(a), left.ld, betas, c.mutable_data_ptr(), type_of(c),
                        c_ld, doubles ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        c, a, b);
}

}  // namespace trireme::ops::cuda
