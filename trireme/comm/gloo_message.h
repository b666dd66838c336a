// A tensor from one rank to another over a GlooChannel: a header with size and dtype that holds the data if they are
// small; else they follow at once.
#pragma once

#include "trireme/comm/collective.h"
#include "trireme/comm/gloo_channel.h"

namespace trireme::comm {

/// Runs the send or receive to its end.
/// Errors    TransportFailure, also when the two ranks name different sizes or dtypes
void run_message(GlooChannel& channel, const Collective& call);

}  // namespace trireme::comm
