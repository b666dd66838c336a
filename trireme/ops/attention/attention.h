// Attention beyond the functions in ops.h: the choice of kernel. paged.h has attention to a cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "trireme/ops/attention/kernels.h"
#include "trireme/ops/ops.h"

namespace trireme::ops {

/// The kernels this processor can run, best first.
std::span<const AttentionKernel* const> attention_kernels();

/// The kernel that runs: for float64 the portable one, otherwise `wanted`, or the best one if `wanted` is null.
const AttentionKernel& attention_kernel(AttentionDtype dtype, const AttentionKernel* wanted);

}  // namespace trireme::ops
