// The shared memory through which the ranks of one host communicate. It holds control words; for each rank a ring of
// call descriptors, four slots for the inputs of small calls and two for the chunks of large calls; and one mailbox for
// each ordered pair of ranks. Processes (shm.h) and threads (threads.h) use the same layout and code. They differ in
// how ranks find the segment, share further memory, and learn that a peer is gone.
//
// Each word is written by one rank and read by all. A rank with nothing to do sleeps on the segment's doorbell, a
// futex. A rank rings the doorbell after a change that sleepers may wait for: it was the last to arrive, or it sent a
// message. While nobody sleeps, this costs one read of a word that rarely changes.
#pragma once

#include "trireme/base/usable_cpus.h"
#include "trireme/comm/call_descriptor.h"
#include "trireme/comm/group.h"
#include "trireme/comm/shared_memory/mapping.h"

#include <atomic>
#include <optional>

namespace trireme::comm {

struct SegmentHeader {
  unsigned char nonce[16];
  int32_t size;
  alignas(64) std::atomic<uint32_t> doorbell;
  std::atomic<uint32_t> sleepers;
  alignas(64) std::atomic<uint32_t> abort_state;  ///< 0 none, 1 being written, 2 set
  char abort_text[1900];
};

/// Words of one rank, written by it alone.
struct RankState {
  alignas(64) std::atomic<uint64_t> posted;  ///< calls it has made; only for error messages
  std::atomic<uint64_t> taken;  ///< calls whose descriptors and eager inputs it no longer needs
  std::atomic<uint64_t> exposed;  ///< rounds that it has copied into its staging slots
  std::atomic<uint64_t> consumed;  ///< rounds that this rank has read from all others
  alignas(64) std::atomic<uint32_t> joined;
  std::atomic<uint32_t> left;  ///< its communicator is gone
  int64_t pid;
  uint64_t process_start;  ///< clock ticks since boot: tells a reused pid apart
  uint64_t cores[base::kMostCpus / 64];  ///< the cores that it may run on, one bit each
};

/// Counts the ranks that have arrived at a call; used if there are more ranks than cores. All ranks write to it.
struct Meeting {
  alignas(64) std::atomic<uint64_t> arrivals;  ///< of all calls that have used this meeting
  std::atomic<uint64_t> verdict;  ///< what the last rank to arrive has done with the call, encoded by sign()

  /// each: every rank does its part. slot: the result is in the last rank's eager slot. done: the call is complete.
  enum Verdict : uint64_t { each, slot, done };
  static constexpr int kRankBits = 20;
  static uint64_t sign(uint64_t sequence, int rank, Verdict verdict) {
    return ((sequence + 1) << (kRankBits + 2)) | (static_cast<uint64_t>(rank) << 2) | verdict;
  }
  static bool is_of(uint64_t sign, uint64_t sequence) { return sign >> (kRankBits + 2) == sequence + 1; }
  static Verdict verdict_of(uint64_t sign) { return static_cast<Verdict>(sign & 3); }
  static int rank_of(uint64_t sign) { return static_cast<int>(sign >> 2 & ((1 << kRankBits) - 1)); }
};

/// Byte stream from one rank to another.
struct Mailbox {
  alignas(64) std::atomic<uint64_t> written;  ///< by the sender
  alignas(64) std::atomic<uint64_t> read;  ///< by the receiver
};

/// Sizes (of one part) and offsets of all parts in bytes, for a group of `size` ranks.
struct SegmentLayout {
  explicit SegmentLayout(int size);
  int64_t slot_bytes, eager_bytes, mailbox_bytes, call_bytes;
  int64_t ranks_at, meetings_at, calls_at, mailboxes_at, eager_at, slots_at, rings_at, total_bytes;
};

/// A rank's offer of memory to its peers, sent by an all_gather.
struct MemoryTicket {
  int64_t bytes = 0, pid = 0, fd = -1;
  uint64_t address = 0;
  char refusal[480] = {};  ///< why there is no memory; empty if there is
};

class SharedSegment {
 public:
  static constexpr int kSlots = 2;
  static constexpr int kEagerSlots = 4;
  static constexpr int kCallRing = 64;  ///< calls that a rank may be ahead of the slowest

  /// `memory` holds layout(size).total_bytes zeroed bytes.
  SharedSegment(std::shared_ptr<Mapping> memory, int size);
  virtual ~SharedSegment() = default;

  int size() const { return size_; }
  const SegmentLayout& layout() const { return layout_; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base()); }
  RankState& rank(int k) const { return reinterpret_cast<RankState*>(base() + layout_.ranks_at)[k]; }
  Meeting& meeting(uint64_t sequence) const {
    return reinterpret_cast<Meeting*>(base() + layout_.meetings_at)[sequence % kCallRing];
  }
  std::byte* call(int k, uint64_t sequence) const {
    return base() + layout_.calls_at + (k * kCallRing + sequence % kCallRing) * layout_.call_bytes;
  }
  std::byte* eager_slot(int k, uint64_t sequence) const {
    return base() + layout_.eager_at + (k * kEagerSlots + sequence % kEagerSlots) * layout_.eager_bytes;
  }
  std::byte* slot(int k, uint64_t round) const {
    return base() + layout_.slots_at + (k * kSlots + round % kSlots) * layout_.slot_bytes;
  }
  Mailbox& mailbox(int from, int to) const {
    return reinterpret_cast<Mailbox*>(base() + layout_.mailboxes_at)[from * size_ + to];
  }
  std::byte* ring(int from, int to) const {
    return base() + layout_.rings_at + (from * size_ + to) * layout_.mailbox_bytes;
  }

  /// If false, every other rank will see this rank's earlier sequentially consistent stores before it goes to sleep.
  bool has_sleepers() const { return header().sleepers.load(std::memory_order_seq_cst) != 0; }
  void ring_doorbell();
  void ring_if_sleepers() {
    if (has_sleepers()) ring_doorbell();
  }

  /// Makes the group unusable for all its ranks. Later texts are ignored.
  void abort(const std::string& text);
  std::optional<std::string> abort_text() const;

  void join(int k);
  void leave(int k);
  /// Waits until all have joined.
  /// Errors    CommError naming the ranks that have not, after the group's timeout
  void wait_for_all(const Group& group);

  /// Whether each rank can have a core of its own. Call it after wait_for_all.
  bool has_core_for_each_rank() const;

  /// The reason if rank `k` is gone; else empty.
  virtual std::string gone(int k) const;

  virtual const char* backend() const = 0;
  /// Makes memory that peers can map, and describes it in `ticket`; errors as Mapping.
  virtual std::shared_ptr<Mapping> offer(int64_t bytes, int64_t claimed_bytes, const std::string& what,
                                         Mapping::Pages pages, MemoryTicket& ticket) = 0;
  /// Maps the memory of a peer's ticket; null, with the reason in `why_not`, if that fails.
  virtual std::shared_ptr<Mapping> accept(const MemoryTicket& ticket, std::string& why_not) = 0;

 private:
  std::byte* base() const { return static_cast<std::byte*>(memory_->data()); }

  std::shared_ptr<Mapping> memory_;
  int size_;
  SegmentLayout layout_;
};

/// Sleeps without missing the doorbell. Make a Sleeper, check your condition once more, then call sleep().
class Sleeper {
 public:
  explicit Sleeper(SharedSegment& segment);
  Sleeper(const Sleeper&) = delete;
  ~Sleeper() { header_.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
  /// Returns when the doorbell has rung since this object was made, or after `limit`; may wake early.
  void sleep(std::chrono::microseconds limit);

 private:
  SegmentHeader& header_;
  uint32_t seen_;
};

}  // namespace trireme::comm
