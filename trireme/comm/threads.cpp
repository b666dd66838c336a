#include "trireme/comm/threads.h"

#include <map>
#include <mutex>

#include "trireme/comm/thread_directory.h"

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

}  // namespace

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
