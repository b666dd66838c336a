// A communicator that does one thing wrong, once: the tests' way to break a rank from inside. The product knows nothing
// of it.
#pragma once

#include <functional>

#include "trireme/comm/communicator.h"

namespace trireme::testing {

enum class FaultKind {
  none,
  skip,  ///< the call is not made; the rank goes on as if it had been
  shape,  ///< an element less than the others
  sleep,  ///< the rank does not come
  stop,  ///< SIGSTOP to itself
  fail,  ///< throws
  kill,  ///< SIGKILL to itself
};

/// Errors    std::invalid_argument for a name that is none
FaultKind fault_kind(const std::string& name);

struct Fault {
  FaultKind kind = FaultKind::none;
  int64_t call = 0;  ///< which call of the communicator, from 0
  std::function<void()> before = {};  ///< called just before it happens
};

/// `inner` with `fault` built in.
comm::CommunicatorPtr make_faulty(comm::CommunicatorPtr inner, Fault fault);

}  // namespace trireme::testing
