// Makes the communicators of tensors on a GPU. Their code is in its own library (trireme_comm_nccl), so that the
// program builds, starts and runs on machines without CUDA. The library is opened when such a communicator is needed
// and the machine has a GPU; otherwise the request is refused in one sentence.
#pragma once

#include "trireme/comm/group.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme::comm {

/// Each function opens the library and makes the communicator on the thread's current device. Call them before anything
/// uses ATen's CUDA.
/// Errors    UsageError without a GPU or without the library; CommError as the other backends

/// Ranks with a GPU each.
CommunicatorPtr make_nccl(const Group& group, const c10::intrusive_ptr<c10d::Store>& store);
/// Collective. Ranks that are threads of this process and share one GPU.
/// Errors    UsageError when a rank is another process, or sits on another GPU
CommunicatorPtr make_device_threads(const Group& group, const c10::intrusive_ptr<c10d::Store>& store);
/// A group of one rank.
CommunicatorPtr make_device_local(const Group& group);

/// Signature of the library's trireme_make_<nccl, device_threads, device_local>; errors as above.
using MakeOnDevice = CommunicatorPtr (*)(const Group& group, const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace trireme::comm
