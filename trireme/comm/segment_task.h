// Calls under way on a SharedSegment, as state machines without a thread: advance() does what can be done now
// and returns. A collective goes through: descriptor published - all descriptors seen and compared - rounds
// (copy a chunk into my staging slot; take my part from all slots) - all ranks have taken theirs. Where all
// givers' tensors lie in shared memory there is one round and no copy: the published descriptor says "my input
// is ready", the last step says "I have read yours". A gather into host_shared memory is the same with the copy
// going into the one result.
#pragma once

#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/exchange.h"
#include "trireme/comm/segment.h"

#include <functional>

namespace trireme::comm {

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

  SharedPlace locate(const at::Tensor& tensor) const;
  RankState& me() const { return segment->rank(group.rank); }
  /// Aborts the group for all ranks and throws CommError.
  [[noreturn]] void fail(const Call& call, int peer, std::chrono::milliseconds elapsed, const std::string& reason);
};

class SegmentTask : public Work {
 public:
  /// Drives the communicator on behalf of a task; blocks until it is done when asked to wait.
  using Driver = std::function<bool(SegmentTask&, bool wait)>;

  SegmentTask(SegmentContext& context, Call call, Driver driver)
      : context_(context), call_(std::move(call)), driver_(std::move(driver)) {}

  bool poll() final { return done_ || driver_(*this, false); }
  void wait() final {
    if (!done_) driver_(*this, true);
  }

  /// Does what is possible now; true when anything was.
  virtual bool advance() = 0;
  /// Ranks without which it cannot go on, and why, for messages.
  virtual std::vector<int> lagging() const = 0;
  virtual std::string lacks(int peer) const = 0;

  bool done() const { return done_; }
  const Call& call() const { return call_; }

 protected:
  void set_done();

  SegmentContext& context_;
  Call call_;

 private:
  Driver driver_;
  bool done_ = false;
};

using SegmentTaskPtr = std::shared_ptr<SegmentTask>;

class CollectiveTask final : public SegmentTask {
 public:
  using SegmentTask::SegmentTask;

  /// Makes the descriptor visible; false when the slowest rank is a whole ring behind. In order of the calls.
  bool publish();
  bool advance() override;
  std::vector<int> lagging() const override;
  std::string lacks(int peer) const override;

 private:
  bool all_posted() const;
  void match();
  void begin_phase();
  bool run_rounds();
  bool in_shared_memory(const Exchange& phase) const;
  bool one_output() const;
  void expose(int64_t round);
  void consume(int64_t round);
  const std::byte* source(int giver, int64_t round) const;
  bool all_consumed(uint64_t rounds) const;
  bool all_exposed(uint64_t rounds) const;

  bool published_ = false, matched_ = false;
  std::vector<SharedPlace> inputs_, outputs_;     // by rank, from the descriptors
  std::vector<int64_t> input_elements_, output_elements_;
  std::vector<Exchange> phases_;
  size_t phase_ = 0;

  // The phase under way.
  enum class Path { staged, direct, one_copy } path_ = Path::staged;
  uint64_t first_round_ = 0;
  int64_t num_rounds_ = 0, chunk_ = 0;  // chunk: elements per giver, taker and round
  int64_t exposed_ = 0, consumed_ = 0;
};

/// Sends or receives one message through a mailbox: a header, then the bytes as a stream.
class MessageTask final : public SegmentTask {
 public:
  using SegmentTask::SegmentTask;

  bool advance() override;
  std::vector<int> lagging() const override { return {call_.collective.root}; }
  std::string lacks(int peer) const override;

 private:
  bool send();
  bool receive();

  int64_t moved_ = 0;  // bytes of header and payload
};

}  // namespace trireme::comm
