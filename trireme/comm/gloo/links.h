// A connection with each other rank of a group, on a network where anybody may connect. Only peers that prove that they
// know the group's key are accepted (gloo/greeting.h). All others are disconnected and delay nobody.
#pragma once

#include "trireme/comm/group.h"

#include "trireme/base/files.h"

namespace trireme::comm {

struct Links {
  std::vector<base::FileDescriptor> sockets;  ///< by group rank; empty at this rank's own place
  std::int64_t strangers = 0;  ///< number of strangers' connections, which were closed
};

/// Collective. `listener` listens at addresses[group.rank]; nobody else may accept connections on it. An address is the
/// bytes of a sockaddr. `key` is the group's secret, the same on all ranks.
/// Cost      two round trips; a rank connects to lower ranks and accepts higher ones
/// Errors    std::runtime_error that names the ranks that have not connected within the group's timeout
Links link_ranks(const Group& group, const std::string& key, int listener, const std::vector<std::string>& addresses);

}  // namespace trireme::comm
