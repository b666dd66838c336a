#include "trireme/comm/shared_memory/segment.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "trireme/base/process.h"
#include "trireme/comm/checked_communicator.h"

namespace trireme::comm {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "words shared between processes must not hide a lock");

namespace {
constexpr int64_t aligned(int64_t bytes, int64_t to = 64) { return (bytes + to - 1) / to * to; }

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* limit) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, limit, nullptr, 0);
}
}  // namespace

SegmentLayout::SegmentLayout(int size) {
  const int64_t n = size;
  // Large enough that the cost of a round (some microseconds) is small, small enough for the second-level cache.
  slot_bytes = aligned(std::clamp<int64_t>((int64_t{4} << 20) / n, 64 << 10, 512 << 10), 4096);
  mailbox_bytes = aligned(std::clamp<int64_t>((int64_t{8} << 20) / (n * n), 16 << 10, 256 << 10), 4096);
  call_bytes = aligned(descriptor_bytes(size));
  eager_bytes = n == 1 ? 0 : aligned(std::clamp<int64_t>((int64_t{512} << 10) / n, 4 << 10, 16 << 10), 4096);
  ranks_at = aligned(sizeof(SegmentHeader));
  meetings_at = aligned(ranks_at + n * static_cast<int64_t>(sizeof(RankState)));
  calls_at = aligned(meetings_at + SharedSegment::kCallRing * static_cast<int64_t>(sizeof(Meeting)));
  mailboxes_at = aligned(calls_at + n * SharedSegment::kCallRing * call_bytes);
  eager_at = aligned(mailboxes_at + n * n * static_cast<int64_t>(sizeof(Mailbox)), 4096);
  slots_at = eager_at + n * SharedSegment::kEagerSlots * eager_bytes;
  rings_at = slots_at + n * SharedSegment::kSlots * slot_bytes;
  total_bytes = rings_at + (n > 1 ? n * n * mailbox_bytes : 0);
}

SharedSegment::SharedSegment(std::shared_ptr<Mapping> memory, int size)
    : memory_(std::move(memory)), size_(size), layout_(size) {}

void SharedSegment::ring_doorbell() {
  header().doorbell.fetch_add(1, std::memory_order_seq_cst);
  futex(header().doorbell, FUTEX_WAKE, INT32_MAX, nullptr);
}

// A sleeper increments the count before its last look. A writer changes its word before it reads the count. All these
// accesses are sequentially consistent, so at least one of the two sees the other.
Sleeper::Sleeper(SharedSegment& segment) : header_(segment.header()) {
  header_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  seen_ = header_.doorbell.load(std::memory_order_seq_cst);
}

void Sleeper::sleep(std::chrono::microseconds limit) {
  const timespec time{limit.count() / 1'000'000, limit.count() % 1'000'000 * 1000};
  futex(header_.doorbell, FUTEX_WAIT, seen_, &time);
}

void SharedSegment::abort(const std::string& text) {
  SegmentHeader& h = header();
  uint32_t none = 0;
  if (!h.abort_state.compare_exchange_strong(none, 1)) return;
  const size_t n = std::min(text.size(), sizeof h.abort_text - 1);
  std::memcpy(h.abort_text, text.data(), n);
  h.abort_text[n] = '\0';
  h.abort_state.store(2, std::memory_order_release);
  ring_doorbell();
}

std::optional<std::string> SharedSegment::abort_text() const {
  if (header().abort_state.load(std::memory_order_acquire) != 2) return std::nullopt;
  return header().abort_text;
}

void SharedSegment::join(int k) {
  rank(k).pid = getpid();
  rank(k).process_start = base::process_start_ticks(getpid()).value_or(0);
  const std::vector<int> cpus = base::usable_cpus();
  std::memset(rank(k).cores, cpus.empty() ? 0xff : 0, sizeof(RankState::cores));
  for (const int cpu : cpus) rank(k).cores[cpu / 64] |= uint64_t{1} << (cpu % 64);
  rank(k).joined.store(1, std::memory_order_release);
  ring_doorbell();
}

void SharedSegment::leave(int k) {
  rank(k).left.store(1, std::memory_order_release);
  ring_doorbell();
}

void SharedSegment::wait_for_all(const Group& group) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    Sleeper sleeper(*this);
    std::string missing;
    int first = -1;
    for (int k = 0; k < size_; ++k) {
      if (rank(k).joined.load(std::memory_order_acquire)) continue;
      if (first < 0) first = k;
      missing += (missing.empty() ? "" : ", ") + name_rank(group, k);
    }
    if (first < 0) return;
    const auto elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed > group.timeout)
      throw_comm_error(
          group, "connect", first, std::chrono::duration_cast<std::chrono::milliseconds>(elapsed),
          fmt::format("{} has not joined within the timeout of {} ms; see whether it has failed, or raise comm.timeout",
                      missing, group.timeout.count()));
    sleeper.sleep(std::chrono::milliseconds(5));
  }
}

// Matches ranks to cores by augmenting paths. A greedy choice would miss matchings in which an earlier rank moves to
// another core.
bool SharedSegment::has_core_for_each_rank() const {
  std::vector<int> rank_on(sizeof(RankState::cores) * 8, -1);
  const auto may_use = [&](int k, size_t core) { return (rank(k).cores[core / 64] >> (core % 64) & 1) != 0; };
  std::vector<bool> tried;
  const std::function<bool(int)> place = [&](int k) {
    for (size_t core = 0; core < rank_on.size(); ++core) {
      if (tried[core] || !may_use(k, core)) continue;
      tried[core] = true;
      if (rank_on[core] >= 0 && !place(rank_on[core])) continue;
      rank_on[core] = k;
      return true;
    }
    return false;
  };
  for (int k = 0; k < size_; ++k) {
    tried.assign(rank_on.size(), false);
    if (!place(k)) return false;
  }
  return true;
}

std::string SharedSegment::gone(int k) const {
  return rank(k).left.load(std::memory_order_acquire) ? "it has closed its communicator" : "";
}

}  // namespace trireme::comm
