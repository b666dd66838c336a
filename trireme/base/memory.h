// Memory that may still be used: what the machine has to spare, and no more than control groups leave.
#pragma once

#include <cstdint>

namespace trireme::base {

struct AvailableMemory {
  int64_t bytes = 0;
  bool is_limited = false;  ///< by the control group of this process, or one around it: the machine has more
};

/// Cached files count as available, swap does not: training from it is no training.
AvailableMemory available_memory();

}  // namespace trireme::base
