// The one suite of checks that every backend must pass, on thread ranks and on process ranks alike: plain
// functions of a communicator, so that the helper program comm_rank can run them without GoogleTest. Tensors lie where
// tensor_device.h says; what is expected is always computed on the CPU.
#pragma once

#include "trireme/comm/communicator.h"

#include <span>
#include <string>

namespace trireme::comm::testing {

struct Check {
  const char* name;
  void (*run)(Communicator& communicator);  ///< throws std::runtime_error saying what is wrong
};

std::span<const Check> all_checks();

/// Runs the check called `name`.
void run_check(const std::string& name, Communicator& communicator);

}  // namespace trireme::comm::testing
