// The door to the communicators of tensors on a GPU, which lie in a library of their own (trireme_comm_nccl) so that
// the program starts, links and runs on machines without CUDA. The library is opened when one is asked for and the
// machine has a GPU; otherwise there is one clear refusal.
#pragma once

#include "trireme/comm/group.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme::comm {

/// Each opens the library and lets it make the communicator, on the thread's current device. Call them before anything
/// asks ATen about CUDA.
/// Errors    UsageError without a GPU or without the library; CommError as the other backends

/// Ranks with a GPU each.
CommunicatorPtr make_nccl(const Group& group, const c10::intrusive_ptr<c10d::Store>& store);
/// Collective. Ranks that are threads of this process and share one GPU.
/// Errors    UsageError when a rank is another process, or sits on another GPU
CommunicatorPtr make_device_threads(const Group& group, const c10::intrusive_ptr<c10d::Store>& store);
/// A group of one rank.
CommunicatorPtr make_device_local(const Group& group);

/// Signature of the symbols trireme_make_<nccl, device_threads, device_local> in the library; they throw what those do.
using MakeOnDevice = CommunicatorPtr (*)(const Group& group, const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace trireme::comm
