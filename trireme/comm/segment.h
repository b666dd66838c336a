// The memory through which the ranks of one host talk: control words, a ring of call descriptors per rank, a few
// slots for the inputs of small calls and two for the chunks of large ones per rank, and one mailbox per ordered pair
// of ranks. Processes (shm.h) and threads (threads.h)
// use the same layout and the same code on it; they differ in how ranks find the segment, share further memory,
// and learn that a peer is gone.
//
// Every word is written by one rank only and read by all. A rank with nothing to do sleeps on the segment's doorbell
// (a futex); whoever makes the change that sleepers may wait for - the last of all ranks to arrive somewhere, a
// message - rings it. While nobody sleeps, that costs one look at a word that hardly ever changes.
#pragma once

#include "trireme/comm/call_descriptor.h"
#include "trireme/comm/group.h"
#include "trireme/comm/mapping.h"

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
  alignas(
      64) std::atomic<uint64_t> posted;  ///< calls it has made, for messages; peers that wait look at the descriptors
  std::atomic<uint64_t> taken;  ///< calls whose descriptors and eager inputs it needs no more
  std::atomic<uint64_t> exposed;  ///< rounds that lie in this rank's staging slots
  std::atomic<uint64_t> consumed;  ///< rounds that this rank has read from all others
  alignas(64) std::atomic<uint32_t> joined;
  std::atomic<uint32_t> left;  ///< its communicator is gone
  int64_t pid;
  uint64_t process_start;  ///< clock ticks since boot: tells a reused pid apart
  uint64_t cores[16];  ///< that it may run on, one bit each
};

/// Where a call's ranks count themselves when they outnumber the cores; written by many, one after the other.
struct Meeting {
  alignas(64) std::atomic<uint64_t> arrivals;  ///< of all calls that have met here
  std::atomic<uint64_t> verdict;  ///< what the last to come has made of the call, as a sign

  enum Verdict : uint64_t { each, slot, done };  ///< go on alone; take the result from its eager slot; all is done
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

/// Where everything lies for a group of `size` ranks.
struct SegmentLayout {
  explicit SegmentLayout(int size);
  int64_t slot_bytes, eager_bytes, mailbox_bytes, call_bytes;
  int64_t ranks_at, meetings_at, calls_at, mailboxes_at, eager_at, slots_at, rings_at, total_bytes;
};

/// A rank's offer of memory to its peers; travels by all_gather.
struct MemoryTicket {
  int64_t bytes = 0, pid = 0, fd = -1;
  uint64_t address = 0;
  char refusal[480] = {};  ///< why there is no memory, empty when there is
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

  /// True when a rank may sleep that has not seen a sequentially consistent store made before this call.
  bool has_sleepers() const { return header().sleepers.load(std::memory_order_seq_cst) != 0; }
  void ring_doorbell();
  /// For changes that a single rank waits for.
  void ring_if_sleepers() {
    if (has_sleepers()) ring_doorbell();
  }

  /// Marks the group unusable for all its ranks; the first text stays.
  void abort(const std::string& text);
  std::optional<std::string> abort_text() const;

  void join(int k);
  void leave(int k);
  /// Waits until all have joined.
  /// Errors    CommError naming the ranks that have not, after the group's timeout
  void wait_for_all(const Group& group);

  /// True when there is a core for each rank; false as soon as two have to share one. After wait_for_all.
  bool has_core_for_each_rank() const;

  /// Why nothing more is to be expected from a rank; empty while it may go on.
  virtual std::string gone(int k) const;

  virtual const char* backend() const = 0;
  /// Memory that peers can map, with pages for this rank alone or for each to touch; errors as Mapping.
  virtual std::shared_ptr<Mapping> offer(int64_t bytes, int64_t claimed_bytes, const std::string& what,
                                         Mapping::Pages pages, MemoryTicket& ticket) = 0;
  virtual std::shared_ptr<Mapping> accept(const MemoryTicket& ticket, std::string& why_not) = 0;

 private:
  std::byte* base() const { return static_cast<std::byte*>(memory_->data()); }

  std::shared_ptr<Mapping> memory_;
  int size_;
  SegmentLayout layout_;
};

/// Going to sleep without missing the bell: make one, look once more for what is waited for, then sleep().
class Sleeper {
 public:
  explicit Sleeper(SharedSegment& segment);
  Sleeper(const Sleeper&) = delete;
  ~Sleeper() { header_.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
  /// Returns when the doorbell has rung since this was made, at the latest after `limit`; may wake early.
  void sleep(std::chrono::microseconds limit);

 private:
  SegmentHeader& header_;
  uint32_t seen_;
};

}  // namespace trireme::comm
