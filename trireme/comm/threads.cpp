#include "trireme/comm/threads.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <random>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/store.h"

namespace trireme::comm {

namespace {

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

// Segments of this process by nonce. The store carries only the nonce: an address from a store could come from
// another process.
struct Directory {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<SharedSegment>> segments;
};

Directory& directory() {
  static Directory d;
  return d;
}

std::string announce(const std::shared_ptr<SharedSegment>& segment) {
  std::random_device random;
  const std::string nonce = fmt::format("{}:{:08x}{:08x}{:08x}", getpid(), random(), random(), random());
  std::lock_guard lock(directory().mutex);
  std::erase_if(directory().segments, [](const auto& entry) { return entry.second.expired(); });
  directory().segments[nonce] = segment;
  return nonce;
}

std::shared_ptr<SharedSegment> find(const std::string& nonce) {
  std::lock_guard lock(directory().mutex);
  const auto found = directory().segments.find(nonce);
  return found == directory().segments.end() ? nullptr : found->second.lock();
}

}  // namespace

std::shared_ptr<SharedSegment> make_thread_segment(int size) {
  const int64_t bytes = SegmentLayout(size).total_bytes;
  auto memory = Mapping::create_private(bytes, bytes, "a segment of thread ranks");
  static_cast<SegmentHeader*>(memory->data())->size = size;
  return std::make_shared<ThreadSegment>(std::move(memory), size);
}

std::shared_ptr<SharedSegment> connect_threads(const Group& group, c10d::Store& store) {
  std::shared_ptr<SharedSegment> segment;
  if (group.rank == 0) {
    segment = make_thread_segment(group.size);
    set_text(store, "segment", announce(segment));
  } else {
    segment = find(wait_for_text(store, group, "segment", 0));
  }
  // All hear of one that cannot take part, and rank 0 keeps the segment until all have it.
  set_text(store, fmt::format("thread/{}", group.rank), segment ? "here" : "elsewhere");
  for (int k = 0; k < group.size; ++k)
    if (wait_for_text(store, group, fmt::format("thread/{}", k), k) != "here")
      throw UsageError(
          fmt::format("[comm] group '{}': {} is not a thread of rank 0's process; use backend shm or gloo "
                      "for ranks that are processes",
                      group.name, name_rank(group, k)));
  return segment;
}

}  // namespace trireme::comm
