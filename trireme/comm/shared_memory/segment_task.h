// Calls in progress on a SharedSegment, as state machines without a thread: advance() does what is possible now and
// returns. The states of a collective are: descriptor published; all descriptors seen and compared; rounds. In a round
// a rank copies a chunk into its staging slot, then takes its part from all slots.
//
// If peers can access each other's tensors, there is one round and no staging. The published descriptor says that the
// input is ready; at the end all wait until each rank has done its part. An all_reduce whose outputs all ranks can
// access also runs in this way (each rank folds a slice and writes it to all outputs), and so does a gather into
// host_shared memory. A small input is copied next to its descriptor, into an "eager slot"; then ranks only wait until
// all have called. If ranks share cores, each of these waits would cost a context switch. So there, the last rank to
// call does a small call for all (segment_meeting.cpp).
#pragma once

#include <utility>

#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/exchange.h"
#include "trireme/comm/shared_memory/segment.h"
#include "trireme/comm/shared_memory/segment_plan.h"

namespace trireme::comm {

/// SharedPlace::region of an input that was copied next to its descriptor.
constexpr int32_t kEager = -2;

/// The common state of the tasks of one communicator.
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
  uint64_t taken_by_all = 0;  ///< the least RankState::taken of the ranks, as last read
  int64_t cache_bytes = 0;  ///< this rank's share of the last-level cache; larger results bypass the cache
  bool crowded = false;  ///< ranks share cores; equal on all ranks
  PlanCache plans;
  std::vector<std::byte> descriptor;  ///< scratch memory for one

  SharedPlace locate(const at::Tensor& tensor) const;
  RankState& me() const { return segment->rank(group.rank); }
  /// True when RankState::taken of every rank is at least `calls`.
  bool all_taken(uint64_t calls);
  /// Aborts the group for all ranks and throws CommError.
  [[noreturn]] void fail(const Call& call, int peer, std::chrono::milliseconds elapsed, const std::string& reason);
};

class SegmentCommunicator;

class SegmentTask : public Work {
 public:
  SegmentTask(SegmentContext& context, Call call, std::weak_ptr<SegmentCommunicator> driver)
      : context_(context), call_(std::move(call)), driver_(std::move(driver)) {}

  bool poll() final { return done_ || drive(false); }
  void wait() final {
    if (!done_) drive(true);
  }

  /// Does what is possible now; true if that was anything.
  virtual bool advance() = 0;
  /// Whether the task cannot continue without `peer`, and what that peer has not done, for error messages.
  virtual bool waits_for(int peer) const = 0;
  virtual std::string lacks(int peer) const = 0;

  bool done() const { return done_; }
  /// Whether it is looked at for the first time.
  bool is_first_look() { return !std::exchange(is_looked_at_, true); }
  const Call& call() const { return call_; }

 protected:
  void set_done();
  void restart(Call& call);

  SegmentContext& context_;
  Call call_;

 private:
  bool drive(bool wait);

  std::weak_ptr<SegmentCommunicator> driver_;  // the work may outlive its communicator
  bool done_ = false, is_looked_at_ = false;
};

using SegmentTaskPtr = std::shared_ptr<SegmentTask>;

class CollectiveTask final : public SegmentTask {
 public:
  /// Allocates enough for all later calls.
  CollectiveTask(SegmentContext& context, Call call, std::weak_ptr<SegmentCommunicator> driver);

  /// Starts `call` with this finished task, and swaps the old call into `call`. Nobody else may hold the task.
  void reuse(Call& call);

  /// Publishes the descriptor; false if the slowest rank is a whole ring behind. Tasks publish in the order of their
  /// calls. `is_first`: no earlier call is in progress on this rank.
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
  int num_called_ = 0;  // ranks 0 to this number - 1 have made the call
  bool meets_ = false;  // waits for the last rank's verdict
  std::vector<CallView> calls_;  // by rank; valid until take()
  const std::vector<PlannedPhase>* phases_ = nullptr;
  size_t phase_ = 0;

  // The current phase.
  const PlannedPhase* planned_ = nullptr;
  Path path_ = Path::staged;
  bool counted_ = false;  // peers are told of its rounds; false if all inputs are in eager slots
  bool waits_for_all_ = false;  // peers may still access this rank's tensors after it has done its part
  bool streams_ = false;  // the output is too large for the cache
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
