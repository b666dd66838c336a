#include "trireme/comm/thread_directory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <random>

#include "trireme/base/error.h"
#include "trireme/comm/store.h"

namespace trireme::comm {

namespace {

// What this process shares, by nonce. The store carries only the nonce: an address from a store could come from
// another process.
struct Directory {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<void>> shared;
};

Directory& directory() {
  static Directory d;
  return d;
}

std::string announce(const std::shared_ptr<void>& shared) {
  std::random_device random;
  const std::string nonce = fmt::format("{}:{:08x}{:08x}{:08x}", getpid(), random(), random(), random());
  std::lock_guard lock(directory().mutex);
  std::erase_if(directory().shared, [](const auto& entry) { return entry.second.expired(); });
  directory().shared[nonce] = shared;
  return nonce;
}

std::shared_ptr<void> find(const std::string& nonce) {
  std::lock_guard lock(directory().mutex);
  const auto found = directory().shared.find(nonce);
  return found == directory().shared.end() ? nullptr : found->second.lock();
}

}  // namespace

std::shared_ptr<void> share_in_process(const Group& group, c10d::Store& store,
                                       const std::function<std::shared_ptr<void>()>& make) {
  std::shared_ptr<void> shared;
  if (group.rank == 0) {
    shared = make();
    set_text(store, "segment", announce(shared));
  } else {
    shared = find(wait_for_text(store, group, "segment", 0));
  }
  // All hear of one that cannot take part, and rank 0 keeps what is shared until all have it.
  set_text(store, fmt::format("thread/{}", group.rank), shared ? "here" : "elsewhere");
  for (int k = 0; k < group.size; ++k)
    if (wait_for_text(store, group, fmt::format("thread/{}", k), k) != "here")
      throw UsageError(
          fmt::format("[comm] group '{}': {} is not a thread of rank 0's process; use backend shm or gloo "
                      "for ranks that are processes",
                      group.name, name_rank(group, k)));
  return shared;
}

}  // namespace trireme::comm
