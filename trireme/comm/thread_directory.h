// How ranks that are threads of one process find what they share: through a random nonce in the store.
#pragma once

#include <functional>
#include <memory>

namespace c10d {
class Store;
}

namespace trireme::comm {

struct Group;

/// Collective. What rank 0 makes, on every rank of the group; it lives as long as one of them holds it.
/// Errors    UsageError when a rank is another process; CommError when one does not join within the timeout
std::shared_ptr<void> share_in_process(const Group& group, c10d::Store& store,
                                       const std::function<std::shared_ptr<void>()>& make);

}  // namespace trireme::comm
