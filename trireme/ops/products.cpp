#include "trireme/ops/products.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

bool is_transposed(const at::Tensor& x) { return x.stride(1) != 1 && x.stride(0) == 1; }
bool has_rows(const at::Tensor& x) { return x.stride(1) == 1 || x.size(1) == 1; }

void check(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  const auto fail = [](const std::string& what) { throw ShapeError("multiply: " + what); };
  const auto sizes = [](const at::Tensor& x) {
    return x.dim() == 2 ? std::string("[").append(std::to_string(x.size(0)) + ", " + std::to_string(x.size(1)) + "]")
                        : std::to_string(x.dim()) + " dimensions";
  };
  if (a.dim() != 2 || b.dim() != 2 || c.dim() != 2 || a.size(1) != b.size(0) || c.size(0) != a.size(0) ||
      c.size(1) != b.size(1))
    fail("a is " + sizes(a) + ", b is " + sizes(b) + " and c is " + sizes(c) +
         "; they must be [M, K], [K, N] and [M, N]");
  const bool widens = a.scalar_type() == at::kBFloat16 && c.scalar_type() == at::kFloat;
  if (a.scalar_type() != b.scalar_type() || (c.scalar_type() != a.scalar_type() && !widens))
    fail(std::string("a is ") + c10::toString(a.scalar_type()) + ", b is " + c10::toString(b.scalar_type()) +
         " and c is " + c10::toString(c.scalar_type()) + "; they must be of one dtype, or c float32 from bfloat16");
  if (accumulate && c.scalar_type() == at::kBFloat16)
    fail("accumulating into bfloat16 would lose bits; c must be float32 or float64");
  if (!has_rows(c)) fail("the rows of c must be contiguous");
}

/// The call for our kernel, where it can do it.
std::optional<GemmCall> gemm_call(const GemmKernel* kernel, const at::Tensor& c, const at::Tensor& a,
                                  const at::Tensor& b, bool accumulate) {
  if (kernel == nullptr || a.size(1) % kernel->k_multiple != 0 || a.size(1) == 0 || c.numel() == 0) return std::nullopt;
  const bool a_transposed = is_transposed(a), b_transposed = is_transposed(b);
  if ((!a_transposed && !has_rows(a)) || (!b_transposed && !has_rows(b))) return std::nullopt;
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

void run_team(const GemmKernel& kernel, const GemmCall& call) {
  struct Taken;
  const int64_t blocks = gemm_blocks(call.n);
  int64_t* taken = thread_scratch<Taken, int64_t>(blocks);
  std::fill_n(taken, blocks, 0);
  // No more threads than whole groups of rows: a thread packs what it multiplies.
  const int64_t groups = (call.m + kGemmGroup - 1) / kGemmGroup * blocks;
  const int threads = static_cast<int>(std::min<int64_t>(at::get_num_threads(), groups));
  parallel_rows(threads, 1, [&](int64_t first, int64_t last) {
    struct Scratch;
    char* scratch = thread_scratch<Scratch, char>(kGemmScratchBytes + 64);
    scratch += (64 - reinterpret_cast<uintptr_t>(scratch) % 64) % 64;
    for (int64_t thread = first; thread < last; ++thread)
      kernel.run(call, {taken, threads}, static_cast<int>(thread), scratch);
  });
}

void multiply_by_library(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  at::AutoDispatchBelowADInplaceOrView without_autograd;
  at::Tensor out = c;
  if (c.scalar_type() == a.scalar_type()) {
    accumulate ? at::addmm_out(out, c, a, b) : at::mm_out(out, a, b);
    return;
  }
  const at::Tensor rounded = at::mm(a, b);
  accumulate ? out.add_(rounded) : out.copy_(rounded);
}

}  // namespace

const GemmKernel* gemm_kernel(at::ScalarType dtype) {
#if defined(__x86_64__)
  static const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  static const bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  if (dtype == at::kFloat && avx512) return &kGemmFloatAvx512;
  if (dtype == at::kBFloat16 && bf16) return &kGemmBfloat16Avx512;
#endif
  static_cast<void>(dtype);
  return nullptr;
}

const char* product_kernel_name(at::ScalarType dtype) {
  const GemmKernel* kernel = gemm_kernel(dtype);
  return kernel == nullptr ? "LibTorch" : kernel->name;
}

void multiply(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  check(c, a, b, accumulate);
  const base::Metered metered(base::Activity::products);
  const GemmKernel* kernel = gemm_kernel(a.scalar_type());
  if (const auto call = gemm_call(kernel, c, a, b, accumulate))
    run_team(*kernel, *call);
  else
    multiply_by_library(c, a, b, accumulate);
}

}  // namespace trireme::ops
