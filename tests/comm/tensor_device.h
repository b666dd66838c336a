// Where the checks of a thread's rank lay their tensors.
#pragma once

#include <c10/core/Device.h>

namespace trireme::comm::testing {

inline thread_local c10::Device tensor_device = c10::kCPU;

}  // namespace trireme::comm::testing
