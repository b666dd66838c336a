// The peak that progress is measured against: what this machine's matrix products reach, measured at the start of
// a run on all ranks at once.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::train {

/// FLOP/s of all ranks together for products of 1024 x 1024 x 2048 in `dtype`, the best of a few.
/// Cost      about 0.1 s; every rank of `world` must call
double measure_peak_flops(at::ScalarType dtype, comm::Communicator& world);

}  // namespace trireme::train
