// CPU tensors between ranks on any network: c10d's ProcessGroupGloo as a transport. Only its send and recv are used:
// its reduce-scatter is an all-reduce, its sums round to bf16 at every hop, and its gathers support equal sizes only.
// Each collective is a direct exchange of messages: every rank sends each peer its slice, straight from the input and
// into the output. Sums are folded here in rank order, so the bits are those of the other backends.
// Connections: gloo/links.h proves that a peer belongs to the group, gloo/device.h passes the connections to Gloo.
// Layers: gloo/channel.h (bytes to a peer), gloo/phase.h (one exchange in chunks), gloo/exchange.h (a collective).
#pragma once

#include "trireme/comm/group.h"

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme::comm {

struct GlooOptions {
  std::string interface;   ///< network interface ("lo", "eth0"); empty: the address of the host's name
  bool sealed = false;     ///< messages are encrypted and authenticated (AES-256-GCM); the key comes from the store
  bool bf16_sums = false;  ///< terms of fp32 sums are rounded to bf16 and sent as such; the sums are in fp32
};

/// What a failure to connect says after `elapsed`. It speaks of the timeout only if that has passed, and names the
/// limit on open files if `reason` does.
std::string why_not_connected(const std::string& interface, const Group& group, std::chrono::milliseconds elapsed,
                              const std::string& reason);

/// Collective.
/// Cost      2 threads of Gloo and 1 lane, plus 1 lane for each peer and direction of messages; for sums of several
///           MiB, 4 MiB of memory, or 64 KiB for each chunk and peer if that is more (see gloo/phase.cpp)
/// Errors    CommError if the ranks do not all join within the timeout
CommunicatorPtr make_gloo(Group group, c10::intrusive_ptr<c10d::Store> store, const GlooOptions& options);

}  // namespace trireme::comm
