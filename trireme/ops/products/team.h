// Runs one of our own kernels for products on LibTorch's threads.
#pragma once

#include "trireme/ops/products/kernels.h"

namespace trireme::ops {

void run_team(const GemmKernel& kernel, const GemmCall& call);

}  // namespace trireme::ops
