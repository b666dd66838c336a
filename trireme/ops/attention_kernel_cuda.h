// Our own attention on a GPU, right for every call (attention_kernel_cuda.cu); where LibTorch's kernels are taken
// instead is decided in attention_cuda.cpp.
#pragma once

#include "trireme/ops/attention_kernel.h"

namespace trireme::ops::cuda {

void own_attention_forward(const AttentionCall& call, AttentionDtype dtype);
void own_attention_backward(const AttentionCall& call, AttentionDtype dtype);

}  // namespace trireme::ops::cuda
