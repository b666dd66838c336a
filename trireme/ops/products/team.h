// Runs one of our own kernels for products on LibTorch's threads.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/ops/products/kernels.h"

namespace trireme::ops {

void run_team(const GemmKernel& kernel, const GemmCall& call);
/// The same for a B in panel order.
void run_panel_team(const GemmKernel& kernel, const GemmCall& call);

/// Bytes behind packed values: a kernel may read one unit of a panel more than there is.
constexpr int64_t kPackedTail = 256;
/// Throws ShapeError unless c = a b is a product with a packed b [k, n] of this dtype (packed.h).
void check_packed_product(const at::Tensor& c, const at::Tensor& a, int64_t n, int64_t k, at::ScalarType dtype);
/// The call for it, without b.
GemmCall packed_call(const at::Tensor& c, const at::Tensor& a);

/// The calling thread's scratch: kGemmScratchBytes.
void* gemm_scratch();

}  // namespace trireme::ops
