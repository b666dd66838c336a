// Ranks that are threads of one process. Their segment is anonymous memory. They find it through a random nonce in
// the store, or get it from the caller. For tests, debugging, and several ranks on one device.
#pragma once

#include <functional>

#include "trireme/comm/shared_memory/segment.h"

namespace c10d {
class Store;
}

namespace trireme::comm {

/// A segment for one group of `size` thread ranks; every rank of the group gets the same pointer.
std::shared_ptr<SharedSegment> make_thread_segment(int size);

/// Collective. Gives every rank of the group the object that rank 0 makes. It lives as long as a rank holds it.
/// Errors    UsageError if a rank is another process; CommError if one does not join within the timeout
std::shared_ptr<void> share_in_process(const Group& group, c10d::Store& store,
                                       const std::function<std::shared_ptr<void>()>& make);

/// A segment from share_in_process.
std::shared_ptr<SharedSegment> connect_threads(const Group& group, c10d::Store& store);

}  // namespace trireme::comm
