// Ranks that are processes of one host. Rank 0 makes the segment and announces "pid fd nonce" through the store;
// the others open it through /proc/<pid>/fd/<fd> and read the nonce there: whoever can do that shares the host.
// Container and host names prove nothing and are not asked. Ranks with different TRIREME_HOST_ID are told apart
// whatever they could open: several hosts played on one.
#pragma once

#include "trireme/comm/segment.h"

namespace c10d {
class Store;
}

namespace trireme::comm {

struct HostSegment {
  std::shared_ptr<SharedSegment> segment;  ///< null when the ranks do not all share a host
  std::string why_not;                     ///< then the reason, the same on all ranks
};

/// Collective. All ranks get a segment or none does.
/// Errors    CommError when a rank does not take part within the timeout
HostSegment connect_processes(const Group& group, c10d::Store& store);

}  // namespace trireme::comm
