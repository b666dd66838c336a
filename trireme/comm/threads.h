// Ranks that are threads of one process: the segment is anonymous memory, found through a random nonce in the
// store or given by the caller. For tests, debugging, and several ranks on one device.
#pragma once

#include "trireme/comm/segment.h"

namespace c10d {
class Store;
}

namespace trireme::comm {

/// A segment for one group of `size` thread ranks; every rank of the group gets the same pointer.
std::shared_ptr<SharedSegment> make_thread_segment(int size);

/// Collective. Finds the segment that rank 0 announces in the store.
/// Errors    UsageError when a rank is another process; CommError when one does not join within the timeout
std::shared_ptr<SharedSegment> connect_threads(const Group& group, c10d::Store& store);

}  // namespace trireme::comm
