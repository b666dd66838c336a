// Ranks on any network, CPU tensors: c10d's ProcessGroupGloo as a transport. Only its send and recv are used:
// its reduce-scatter is an all-reduce, its sums round to bf16 at every hop, and its gathers know equal sizes only.
// On messages, each collective is a direct exchange (every rank sends each peer its slice, straight from the input
// and into the output) and sums are folded here, in rank order, so the bits are those of the other backends.
#pragma once

#include "trireme/comm/group.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme::comm {

/// Collective. `interface` names a network interface ("lo", "eth0"); empty: the address of the host's name.
/// Cost      2 threads of Gloo and 1 of ours, plus 1 per peer and direction that messages use
/// Errors    CommError when the ranks do not all join within the timeout
CommunicatorPtr make_gloo(Group group, c10::intrusive_ptr<c10d::Store> store, const std::string& interface);

}  // namespace trireme::comm
