#include "trireme/comm/shared_memory/threads.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/comm/c10d_store.h"
#include "trireme/store/token.h"

namespace trireme::comm {
namespace {
// What this process shares, by nonce. The store carries only the nonce: an address in a store could come from another
// process.
struct Directory {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<void>> shared;
};

Directory& directory() {
  static Directory d;
  return d;
}

std::string announce(const std::shared_ptr<void>& shared) {
  const std::string nonce = fmt::format("{}:{}", getpid(), store::draw_token());
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

class ThreadSegment final : public SharedSegment {
 public:
  using SharedSegment::SharedSegment;

  const char* backend() const override { return "threads"; }

  std::shared_ptr<Mapping> offer(int64_t bytes, int64_t claimed_bytes, const std::string& what, Mapping::Pages,
                                 MemoryTicket& ticket) override {
    auto mapping = Mapping::create_private(bytes, claimed_bytes, what);
    ticket.bytes = bytes;
    ticket.address = reinterpret_cast<uint64_t>(mapping->data());
    std::lock_guard lock(mutex_);
    offered_[ticket.address] = mapping;
    return mapping;
  }

  std::shared_ptr<Mapping> accept(const MemoryTicket& ticket, std::string& why_not) override {
    std::lock_guard lock(mutex_);
    const auto found = offered_.find(ticket.address);
    if (found != offered_.end())
      if (auto mapping = found->second.lock()) return mapping;
    why_not = "the memory was given up before all ranks had it";
    return nullptr;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Mapping>> offered_;
};
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
  // All ranks learn if one cannot take part, and rank 0 keeps the object until all have it.
  set_text(store, fmt::format("thread/{}", group.rank), shared ? "here" : "elsewhere");
  for (int k = 0; k < group.size; ++k)
    if (wait_for_text(store, group, fmt::format("thread/{}", k), k) != "here")
      throw UsageError(
          fmt::format("[comm] group '{}': {} is not a thread of rank 0's process; use backend shm or gloo for ranks "
                      "that are processes",
                      group.name, name_rank(group, k)));
  return shared;
}

std::shared_ptr<SharedSegment> make_thread_segment(int size) {
  const int64_t bytes = SegmentLayout(size).total_bytes;
  auto memory = Mapping::create_private(bytes, bytes, "a segment of thread ranks");
  static_cast<SegmentHeader*>(memory->data())->size = size;
  return std::make_shared<ThreadSegment>(std::move(memory), size);
}

std::shared_ptr<SharedSegment> connect_threads(const Group& group, c10d::Store& store) {
  return std::static_pointer_cast<SharedSegment>(
      share_in_process(group, store, [&] { return make_thread_segment(group.size); }));
}

}  // namespace trireme::comm
