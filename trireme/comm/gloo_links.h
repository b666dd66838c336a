// A connection with each other rank of a group, on a network where anybody may connect: only who proves to know the
// group's key is taken (gloo_greeting.h), and whoever else comes is hung up on and disturbs nobody.
#pragma once

#include "trireme/comm/group.h"

#include "trireme/base/files.h"

namespace trireme::comm {

struct Links {
  std::vector<base::FileDescriptor> sockets;  ///< by group rank; this rank's own place holds none
  std::int64_t strangers = 0;                 ///< connections that were hung up on
};

/// Collective. `listener` listens at addresses[group.rank] and takes no connections otherwise; an address is the bytes
/// of a sockaddr. `key` is the same on all ranks, and nobody else knows it.
///
/// Cost      two round trips; a rank calls those below it and hosts those above
/// Errors    std::runtime_error that names the ranks which have not come within the group's timeout
Links link_ranks(const Group& group, const std::string& key, int listener, const std::vector<std::string>& addresses);

}  // namespace trireme::comm
