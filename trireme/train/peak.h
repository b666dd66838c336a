// The peak that progress is measured against, measured at the start of a run on all ranks at once: what a processor's
// multiply-add units reach on registers alone, or a GPU in one large product.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "trireme/comm/communicator.h"

namespace trireme::train {

/// FLOP/s of all ranks together in `dtype` (ops::register_loop_flops, with LibTorch's number of threads), as far as
/// there are cores for all their threads (core_time.h). On GPUs: of products of two matrices of 8192 x 8192, of random
/// numbers, the best of 10; of smaller ones where the GPU has no room left.
/// Cost      about 0.04 s, on a GPU 0.2 s and 400 MB of its memory; every rank of `world` must call
double measure_peak_flops(at::ScalarType dtype, comm::Communicator& world, at::Device device = at::kCPU);

/// What it measures on such a device, for a sentence: "what multiply-adds on registers reach here".
std::string what_peak_is(at::ScalarType dtype, at::Device device);

}  // namespace trireme::train
