// The peak that progress is measured against: what this machine's multiply-add units reach on registers alone,
// measured at the start of a run on all ranks at once.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::train {

/// FLOP/s of all ranks together in `dtype` (ops::register_loop_flops, with LibTorch's number of threads), as far as
/// there are cores for all their threads (core_time.h). Cost      about 0.04 s; every rank of `world` must call
double measure_peak_flops(at::ScalarType dtype, comm::Communicator& world);

}  // namespace trireme::train
