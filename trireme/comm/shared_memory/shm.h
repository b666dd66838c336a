// Ranks that are processes of one host. Rank 0 creates the segment and publishes "pid fd nonce" in the store. The
// others open /proc/<pid>/fd/<fd> and read the nonce there: a rank that can do so is on the same host. Host and
// container names prove nothing and are not used. Ranks with different TRIREME_HOST_ID always count as different hosts;
// this simulates several hosts on one.
#pragma once

#include "trireme/comm/shared_memory/segment.h"

namespace c10d {
class Store;
}

namespace trireme::comm {

struct HostSegment {
  std::shared_ptr<SharedSegment> segment;  ///< null on all ranks if they do not all share a host
  std::string why_not;  ///< the reason if there is none, the same on all ranks
};

/// Collective.
/// Errors    CommError if a rank does not take part within the timeout
HostSegment connect_processes(const Group& group, c10d::Store& store);

}  // namespace trireme::comm
