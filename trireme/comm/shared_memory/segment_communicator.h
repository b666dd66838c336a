// The communicator of ranks that share memory: processes (shm) or threads. It keeps the calls in progress in queues
// (one for collectives, one for each peer and direction of messages) and advances them whenever it is called. A wait
// spins briefly, then sleeps on the segment's doorbell. Lost peers, calls that do not match and timeouts give a
// CommError on every rank.
#pragma once

#include "trireme/comm/shared_memory/segment_task.h"
#include "trireme/comm/shared_memory/segment_wait.h"

namespace trireme::comm {

/// First in, first out. Unlike std::deque it keeps its memory when it shrinks.
class TaskQueue {
 public:
  void push(SegmentTaskPtr task) { tasks_.push_back(std::move(task)); }
  void pop();
  bool empty() const { return first_ == tasks_.size(); }
  SegmentTask& front() const { return *tasks_[first_]; }
  const SegmentTaskPtr& front_pointer() const { return tasks_[first_]; }
  std::span<const SegmentTaskPtr> all() const { return std::span(tasks_).subspan(first_); }

 private:
  std::vector<SegmentTaskPtr> tasks_;
  size_t first_ = 0;
};

class SegmentCommunicator final : public CheckedCommunicator, public std::enable_shared_from_this<SegmentCommunicator> {
 public:
  /// All ranks, this one included, must have joined `segment`.
  SegmentCommunicator(Group group, std::shared_ptr<SharedSegment> segment);
  ~SegmentCommunicator() override;

  std::string backend() const override { return context_.segment->backend(); }
  SharedBuffer allocate_shared(int64_t bytes, bool host_shared) override;
  void progress() override;
  void drive_while_waiting(const std::vector<std::shared_ptr<Communicator>>& others) override;
  /// Makes progress for `task`, until it is done if `wait` is true; returns whether it is done.
  bool drive_for(SegmentTask& task, bool wait);

 private:
  WorkPtr start(Call call) override { return enqueue(std::move(call)); }
  WorkPtr enqueue(Call&& call);
  std::shared_ptr<CollectiveTask> task_for(Call&& call);
  void publish();
  bool drive();
  bool drive(TaskQueue& queue);
  bool has_work() const { return !collectives_.empty() || num_messages_ > 0; }
  bool drive_siblings(bool& have_work);
  bool poll(SegmentTask& task);
  void wait(SegmentTask& task);
  void check_peers(SegmentTask& task, std::chrono::milliseconds elapsed);
  SegmentTask& front_before(SegmentTask& task);
  [[noreturn]] void throw_aborted(const Call& call, const std::string& text, std::chrono::milliseconds elapsed = {});
  void exchange_blobs(void* all, const void* mine, int64_t bytes_each, int64_t extent, bool host_shared);

  SegmentContext context_;
  TaskQueue collectives_;
  size_t num_unpublished_ = 0;               // how many at the end of collectives_
  std::vector<std::shared_ptr<CollectiveTask>> finished_;  // for reuse, once nobody else holds them
  std::vector<TaskQueue> sends_, receives_;  // by peer
  int num_messages_ = 0;                     // in all of these
  std::vector<std::weak_ptr<SegmentCommunicator>> siblings_;
  Spinner spinner_;
  // For poll(): the time without progress, and the times of the last poll and the last check of the peers.
  std::chrono::steady_clock::duration stalled_{};
  std::chrono::steady_clock::time_point last_poll_{}, last_peer_check_{};
};

}  // namespace trireme::comm
