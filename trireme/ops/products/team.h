// Runs one of our own kernels for products on LibTorch's threads.
#pragma once

#include "trireme/ops/products/kernels.h"

namespace trireme::ops {

void run_team(const GemmKernel& kernel, const GemmCall& call);
/// The same for a B in panel order.
void run_panel_team(const GemmKernel& kernel, const GemmCall& call);

/// The calling thread's scratch: kGemmScratchBytes.
void* gemm_scratch();

}  // namespace trireme::ops
