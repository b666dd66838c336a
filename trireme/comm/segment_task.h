// Calls under way on a SharedSegment, as state machines without a thread: advance() does what can be done now
// and returns. A collective goes through: descriptor published - all descriptors seen and compared - rounds
// (copy a chunk into my staging slot; take my part from all slots). Where peers can reach each other's tensors there
// is one round and no staging: the published descriptor says "my input is ready", and one more step, "I have done my
// part", is waited for by all. So are an all_reduce whose outputs all can reach (each rank folds a slice and writes it
// everywhere) and a gather into host_shared memory. A small input is copied next to its descriptor (an eager
// slot): then ranks need no more of each other than that all have called. Where ranks share cores, each of those looks
// would cost a change of process; small calls are then done by the rank that calls last, for all (segment_meeting.cpp).
#pragma once

#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/exchange.h"
#include "trireme/comm/segment.h"
#include "trireme/comm/segment_plan.h"

namespace trireme::comm {

/// The region of an input that was copied next to its descriptor; not the number of one.
constexpr int32_t kEager = -2;

/// What the tasks of one communicator share.
struct SegmentContext {
  struct Region {
    std::vector<std::byte*> parts;  ///< by rank, as mapped here; all equal when host_shared
    int64_t bytes;
    bool host_shared;
  };
  Group group;
  std::shared_ptr<SharedSegment> segment;
  std::vector<Region> regions;
  uint64_t next_round = 0;  ///< rounds of all calls so far; equal on all ranks
  uint64_t taken_by_all = 0;  ///< the least of the ranks' `taken` when last looked
  int64_t cache_bytes = 0;  ///< this rank's share of the last-level cache; larger results are streamed past it
  bool crowded = false;  ///< ranks share cores; equal on all ranks
  PlanCache plans;
  std::vector<std::byte> descriptor;  ///< room to write one

  SharedPlace locate(const at::Tensor& tensor) const;
  RankState& me() const { return segment->rank(group.rank); }
  /// True when every rank has `taken` at least `calls`.
  bool all_taken(uint64_t calls);
  /// Aborts the group for all ranks and throws CommError.
  [[noreturn]] void fail(const Call& call, int peer, std::chrono::milliseconds elapsed, const std::string& reason);
};

class SegmentTask;

/// Drives the communicator on behalf of a task; blocks until it is done when asked to wait.
class TaskDriver {
 public:
  virtual bool drive_for(SegmentTask& task, bool wait) = 0;

 protected:
  ~TaskDriver() = default;
};

class SegmentTask : public Work {
 public:
  SegmentTask(SegmentContext& context, Call call, std::weak_ptr<TaskDriver> driver)
      : context_(context), call_(std::move(call)), driver_(std::move(driver)) {}

  bool poll() final { return done_ || drive(false); }
  void wait() final {
    if (!done_) drive(true);
  }

  /// Does what is possible now; true when anything was.
  virtual bool advance() = 0;
  /// True while it cannot go on without `peer`, and why, for messages.
  virtual bool waits_for(int peer) const = 0;
  virtual std::string lacks(int peer) const = 0;

  bool done() const { return done_; }
  const Call& call() const { return call_; }

 protected:
  void set_done();
  void restart(Call& call);

  SegmentContext& context_;
  Call call_;

 private:
  bool drive(bool wait);

  std::weak_ptr<TaskDriver> driver_;  // the work may outlive its communicator
  bool done_ = false;
};

using SegmentTaskPtr = std::shared_ptr<SegmentTask>;

class CollectiveTask final : public SegmentTask {
 public:
  /// Has room for whatever its calls may need, so that none allocates because it goes another way than those before.
  CollectiveTask(SegmentContext& context, Call call, std::weak_ptr<TaskDriver> driver);

  /// Makes a finished task that nobody else holds into one for another call, and gives back its own; keeps its vectors.
  void reuse(Call& call);

  /// Makes the descriptor visible; false when the slowest rank is a whole ring behind. In order of the calls.
  /// `is_first`: no call before it is under way on this rank.
  bool publish(bool is_first);
  bool advance() override;
  bool waits_for(int peer) const override;
  std::string lacks(int peer) const override;

 private:
  enum class Path { staged, direct, one_copy };

  bool has_all(std::atomic<uint64_t> RankState::* word, uint64_t value) const;
  std::atomic_ref<uint64_t> number_of(int k) const;
  bool all_have_called();
  void arrive(std::atomic<uint64_t> RankState::* word, uint64_t value);
  SharedPlace place_input();
  void copy_for_peers(std::byte* to, const void* from, int64_t bytes) const;
  void arrive_at_meeting(bool is_first);
  bool meet();
  bool all_eager() const;
  Meeting::Verdict do_for_all(bool is_first);
  void take_result(int from);
  std::optional<Mismatch> compare_calls();
  void match();
  OutputMemory output_memory() const;
  void begin_phase();
  Path choose_path() const;
  void find_sources();
  void find_targets();
  bool run_rounds();
  void expose(int64_t round);
  void consume(int64_t round);
  void fold_sources(int64_t done, int64_t n);
  void copy(std::byte* to, const std::byte* from, int64_t bytes) const;
  const std::byte* source(int giver, int64_t round) const;
  void take();
  int rank() const { return context_.group.rank; }
  int size() const { return context_.segment->size(); }
  const Exchange& tables() const { return planned_->tables; }

  bool published_ = false, matched_ = false, taken_ = false;
  int num_called_ = 0;  // ranks from 0 on that have been seen to make this call
  bool meets_ = false;  // waits for what the last rank makes of the call
  std::vector<CallView> calls_;  // by rank; valid until this rank says that it has taken them
  const std::vector<PlannedPhase>* phases_ = nullptr;
  size_t phase_ = 0;

  // The phase under way.
  const PlannedPhase* planned_ = nullptr;
  Path path_ = Path::staged;
  bool counted_ = false;  // its rounds are told to peers; not when all inputs lie in eager slots
  bool waits_for_all_ = false;  // others still read or write what is this rank's after it has done its part
  bool streams_ = false;  // copies and pushes are too large for the cache
  uint64_t first_round_ = 0;
  int64_t num_rounds_ = 0, chunk_ = 0;  // chunk: elements per giver, taker and round
  int64_t exposed_ = 0, consumed_ = 0;
  const std::byte* input_ = nullptr;
  int64_t in_size_ = 1, out_size_ = 1;  // bytes of an element
  std::vector<const std::byte*> sources_;  // by giver, where its slice for this rank begins; staged: unused
  std::vector<std::byte*> outputs_;  // where results go: this rank's output, or everyone's
  std::vector<const void*> fold_from_;
  std::vector<void*> fold_to_;
};

/// Sends or receives one message through a mailbox: a header, then the bytes as a stream.
class MessageTask final : public SegmentTask {
 public:
  using SegmentTask::SegmentTask;

  bool advance() override;
  bool waits_for(int peer) const override { return peer == call_.collective.root; }
  std::string lacks(int peer) const override;

 private:
  bool send();
  bool receive();

  int64_t moved_ = 0;  // bytes of header and payload
};

}  // namespace trireme::comm
