#include "trireme/ops/products/products.h"
#include "trireme/ops/announce.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/base/processor.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/products/library.h"
#include "trireme/ops/products/team.h"

namespace trireme::ops {
namespace {

void check(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  const auto sizes = [](const at::Tensor& x) {
    return x.dim() == 2 ? fmt::format("[{}, {}]", x.size(0), x.size(1)) : fmt::format("{} dimensions", x.dim());
  };
  if (a.dim() != 2 || b.dim() != 2 || c.dim() != 2 || a.size(1) != b.size(0) || c.size(0) != a.size(0) ||
      c.size(1) != b.size(1))
    throw ShapeError(fmt::format("multiply: a is {}, b is {} and c is {}; they must be [M, K], [K, N] and [M, N]",
                                 sizes(a), sizes(b), sizes(c)));
  const bool widens = is_narrow(a.scalar_type()) && c.scalar_type() == at::kFloat;
  if (a.scalar_type() != b.scalar_type() || (c.scalar_type() != a.scalar_type() && !widens))
    throw ShapeError(
        fmt::format("multiply: a is {}, b is {} and c is {}; they must be of one dtype, or c float32 from bfloat16 or "
                    "float16",
                    c10::toString(a.scalar_type()), c10::toString(b.scalar_type()), c10::toString(c.scalar_type())));
  if (accumulate && is_narrow(c.scalar_type()))
    throw ShapeError("multiply: accumulating into two bytes would lose bits; c must be float32 or float64");
  if (!has_rows(c)) throw ShapeError("multiply: the rows of c must be contiguous");
}

/// The call for our kernel, if it supports it.
std::optional<GemmCall> gemm_call(const GemmKernel& kernel, const at::Tensor& c, const at::Tensor& a,
                                  const at::Tensor& b, bool accumulate) {
  if (a.size(1) % kernel.k_multiple != 0 || a.size(1) == 0 || c.numel() == 0) return std::nullopt;
  const bool a_transposed = is_transposed(a), b_transposed = is_transposed(b);
  if (!is_matrix(a) || !is_matrix(b)) return std::nullopt;
  const auto ld = [](const at::Tensor& x, bool transposed) { return transposed ? x.stride(1) : x.stride(0); };
  return GemmCall{.m = c.size(0),
                  .n = c.size(1),
                  .k = a.size(1),
                  .a = a.const_data_ptr(),
                  .a_ld = ld(a, a_transposed),
                  .a_transposed = a_transposed,
                  .b = b.const_data_ptr(),
                  .b_ld = ld(b, b_transposed),
                  .b_transposed = b_transposed,
                  .c = c.mutable_data_ptr(),
                  .c_ld = c.stride(0),
                  .accumulate = accumulate,
                  .c_is_float = c.scalar_type() == at::kFloat};
}

/// Forward products, those of gradients of inputs and those of gradients of weights differ in speed.
const char* layout_name(const at::Tensor& a, const at::Tensor& b) {
  return is_transposed(a) ? "product_tn" : is_transposed(b) ? "product_nt" : "product_nn";
}

const char* onto_name(const at::Tensor& a, const at::Tensor& b) {
  return is_transposed(a) ? "product_tn_onto" : is_transposed(b) ? "product_nt_onto" : "product_nn_onto";
}

/// Matrix units are several times as fast as the registers' multiply-adds, and LibTorch drives them.
bool has_matrix_units(at::ScalarType dtype) { return dtype == at::kBFloat16 && base::processor().amx_bf16; }

bool multiply_on_matrix_units(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  if (!has_matrix_units(a.scalar_type())) return false;
  if (c.scalar_type() == at::kFloat) return multiply_bfloat16_by_mkl(c, a, b, accumulate);
  multiply_by_library(c, a, b, accumulate);
  return true;
}

#if defined(__x86_64__)
/// What this processor can run, the fastest first.
struct Kernels {
  std::vector<const GemmKernel*> of_float, of_half, of_bfloat16;

  Kernels() {
    const base::Processor& has = base::processor();
    // Intel's dot product of 16 pairs takes 2.2 cycles, and two of float32's multiply-adds take 1.1 (Sapphire Rapids).
    const bool pairs_first = has.is_amd;
    if (has.avx512_bf16 && pairs_first) of_bfloat16.push_back(&kGemmBfloat16Avx512Bf16);
    if (has.avx512) {
      of_float = {&kGemmFloatWideAvx512, &kGemmFloatAvx512}, of_half = {&kGemmHalfWideAvx512, &kGemmHalfAvx512};
      if (!has.avx512_bf16) std::ranges::reverse(of_float), std::ranges::reverse(of_half);
      of_bfloat16.push_back(&kGemmBfloat16Avx512);
    }
    if (has.avx512_bf16 && !pairs_first) of_bfloat16.push_back(&kGemmBfloat16Avx512Bf16);
    if (!has.avx2) return;
    of_float.push_back(&kGemmFloatAvx2), of_half.push_back(&kGemmHalfAvx2), of_bfloat16.push_back(&kGemmBfloat16Avx2);
  }
};
#endif

}  // namespace

std::span<const GemmKernel* const> gemm_kernels(at::ScalarType dtype) {
#if defined(__x86_64__)
  static const Kernels kernels;
  if (dtype == at::kFloat) return kernels.of_float;
  if (dtype == at::kHalf) return kernels.of_half;
  if (dtype == at::kBFloat16) return kernels.of_bfloat16;
#endif
  static_cast<void>(dtype);
  return {};
}

const char* product_kernel_name(at::ScalarType dtype) {
  const auto kernels = gemm_kernels(dtype);
  return kernels.empty() || has_matrix_units(dtype) ? "LibTorch" : kernels.front()->name;
}

bool multiply_by(const GemmKernel& kernel, const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
                 bool accumulate) {
  check(c, a, b, accumulate);
  const auto call = gemm_call(kernel, c, a, b, accumulate);
  if (call) run_team(kernel, *call);
  return call.has_value();
}

void multiply(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  check(c, a, b, accumulate);
  const Announced announced([&] { return product_operation(layout_name(a, b), c, a, b.size(1)); });
  if (announced.skipped()) return;
  const base::Metered metered(base::Activity::products);
  if (c.is_cuda()) return cuda_kernels().multiply(c, a, b, accumulate);
  if (multiply_on_matrix_units(c, a, b, accumulate)) return;
  for (const GemmKernel* kernel : gemm_kernels(a.scalar_type()))
    if (const auto call = gemm_call(*kernel, c, a, b, accumulate)) return run_team(*kernel, *call);
  multiply_by_library(c, a, b, accumulate);
}

void multiply_onto(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend) {
  check(c, a, b, false);
  check_tensor("multiply_onto", "addend", addend, c.sizes(), c.scalar_type());
  const Announced announced([&] {
    Operation operation = product_operation(onto_name(a, b), c, a, b.size(1));
    operation.bytes += bytes_of({&addend});
    return operation;
  });
  if (announced.skipped()) return;
  if (c.is_cuda()) {
    const base::Metered metered(base::Activity::products);
    if (cuda_kernels().multiply_onto(c, a, b, addend)) return;
  }
  multiply(c, a, b);
  add_forward(c, c, addend);
}

}  // namespace trireme::ops
