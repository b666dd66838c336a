// Ranks on any network, CPU tensors: c10d's ProcessGroupGloo as a transport. Only its send and recv are used:
// its reduce-scatter is an all-reduce, its sums round to bf16 at every hop, and its gathers know equal sizes only.
// On messages, each collective is a direct exchange (every rank sends each peer its slice, straight from the input
// and into the output) and sums are folded here, in rank order, so the bits are those of the other backends.
// Who connects: gloo_links.h proves that a peer is of the group, gloo_device.h hands the connections to Gloo.
// Layers: gloo_channel.h (bytes to a peer), gloo_phase.h (one exchange in chunks), gloo_exchange.h (a collective).
#pragma once

#include "trireme/comm/group.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme::comm {

struct GlooOptions {
  std::string interface;   ///< of the network ("lo", "eth0"); empty: the address of the host's name
  bool sealed = false;  ///< nobody on the network can read or change messages (AES-256-GCM); the store brings the key
  bool bf16_sums = false;  ///< fp32 sums send, and fold, their terms rounded to bf16; the sums are in fp32
};

/// Collective.
/// Cost      2 threads of Gloo and 1 of ours, plus 1 per peer and direction that messages use; memory for sums of
///           several MiB: at most 4 MiB, more only where 64 KiB for each chunk and peer is more (see gloo_phase.cpp)
/// Errors    CommError when the ranks do not all join within the timeout
CommunicatorPtr make_gloo(Group group, c10::intrusive_ptr<c10d::Store> store, const GlooOptions& options);

}  // namespace trireme::comm
