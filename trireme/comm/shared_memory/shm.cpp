#include "trireme/comm/shared_memory/shm.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/error.h"
#include "trireme/base/process.h"
#include "trireme/comm/c10d_store.h"
#include "trireme/comm/checked_communicator.h"
#include "trireme/store/proof.h"

namespace trireme::comm {
namespace {
class ProcessSegment final : public SharedSegment {
 public:
  using SharedSegment::SharedSegment;

  const char* backend() const override { return "shm"; }

  std::string gone(int k) const override {
    if (std::string left = SharedSegment::gone(k); !left.empty()) return left;
    const RankState& state = rank(k);
    return base::is_gone(state.pid, state.process_start) ? fmt::format("its process {} is gone", state.pid) : "";
  }

  std::shared_ptr<Mapping> offer(int64_t bytes, int64_t claimed_bytes, const std::string& what, Mapping::Pages pages,
                                 MemoryTicket& ticket) override {
    auto mapping = Mapping::create_shared(bytes, claimed_bytes, what, pages);
    ticket.bytes = bytes;
    ticket.pid = getpid();
    ticket.fd = mapping->fd();
    return mapping;
  }

  std::shared_ptr<Mapping> accept(const MemoryTicket& ticket, std::string& why_not) override {
    return Mapping::open_peer(static_cast<int>(ticket.pid), static_cast<int>(ticket.fd), ticket.bytes, why_not);
  }
};

std::string to_hex(const unsigned char* bytes, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

// In quotes, because it may be empty.
std::string host_id() {
  const char* id = std::getenv("TRIREME_HOST_ID");
  return fmt::format("'{}'", id == nullptr ? "" : id);
}

std::shared_ptr<Mapping> create(const Group& group, std::string& announcement) {
  const int64_t bytes = SegmentLayout(group.size).total_bytes;
  auto memory = Mapping::create_shared(bytes, bytes, fmt::format("the segment of group '{}'", group.name));
  auto& header = *static_cast<SegmentHeader*>(memory->data());
  header.size = group.size;
  store::draw_bytes(sizeof header.nonce).copy(reinterpret_cast<char*>(header.nonce), sizeof header.nonce);
  announcement =
      fmt::format("{} {} {} {}", getpid(), memory->fd(), to_hex(header.nonce, sizeof header.nonce), host_id());
  return memory;
}

std::shared_ptr<Mapping> open(const Group& group, const std::string& announcement, std::string& why_not) {
  std::istringstream words(announcement);
  int pid = 0, fd = 0;
  std::string nonce, host;
  if (!(words >> pid >> fd >> nonce) || !std::getline(words >> std::ws, host)) {
    why_not = announcement;
    return nullptr;
  }
  if (host != host_id()) {
    why_not = fmt::format("its TRIREME_HOST_ID is {}, rank 0's is {}", host_id(), host);
    return nullptr;
  }
  auto memory = Mapping::open_peer(pid, fd, SegmentLayout(group.size).total_bytes, why_not);
  if (!memory) return nullptr;
  const auto& header = *static_cast<const SegmentHeader*>(memory->data());
  if (header.size == group.size && to_hex(header.nonce, sizeof header.nonce) == nonce) return memory;
  why_not = fmt::format("/proc/{}/fd/{} here is not the segment of rank 0", pid, fd);
  return nullptr;
}
}  // namespace

HostSegment connect_processes(const Group& group, c10d::Store& store) {
  std::shared_ptr<Mapping> memory;
  std::string why_not, announcement;
  if (group.rank == 0) {
    try {
      memory = create(group, announcement);
    } catch (const CommError& error) {
      announcement = why_not = error.what();
    }
    set_text(store, "segment", announcement);
  } else {
    memory = open(group, wait_for_text(store, group, "segment", 0), why_not);
  }
  std::shared_ptr<SharedSegment> segment;
  if (memory) {
    segment = std::make_shared<ProcessSegment>(memory, group.size);
    segment->join(group.rank);
  }
  // All ranks must share the host. Rank 0 keeps its descriptor open until all have said whether they do.
  set_text(store, fmt::format("host/{}", group.rank), segment ? "here" : why_not);
  HostSegment result{segment, ""};
  for (int k = 0; k < group.size; ++k) {
    const std::string verdict = wait_for_text(store, group, fmt::format("host/{}", k), k);
    if (verdict == "here" || !result.why_not.empty()) continue;
    result = {nullptr, fmt::format("{}: {}", name_rank(group, k), verdict)};
  }
  if (result.segment) memory->close_fd();
  return result;
}

}  // namespace trireme::comm
