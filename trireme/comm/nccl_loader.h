// The door to the nccl backend, which lives in a library of its own (trireme_comm_nccl) so that the program
// starts, links and runs on machines without CUDA. The library is opened when the backend is asked for and the
// machine has a GPU; otherwise there is one clear refusal.
#pragma once

#include "trireme/comm/group.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme::comm {

/// Opens the library and lets it make the communicator. Call it before anything asks ATen about CUDA.
/// Errors    UsageError without a GPU or without the library; CommError as the other backends
CommunicatorPtr make_nccl(Group group, c10::intrusive_ptr<c10d::Store> store);

/// Signature of the symbol "trireme_make_nccl" in the library; throws what make_nccl throws.
using MakeNccl = CommunicatorPtr (*)(const Group& group, const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace trireme::comm
