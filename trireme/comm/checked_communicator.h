// The part that all backends share: it turns a call into a Collective, checks it before anything is sent, numbers and
// records it, and passes it to the backend's start(). A communicator is used by one thread at a time.
#pragma once

#include <array>
#include <chrono>

#include "trireme/comm/collective.h"
#include "trireme/comm/group.h"
#include "trireme/comm/shared_memory/mapping.h"

namespace trireme::comm {

struct ActionLabel;  // flight_recorder.h

/// A checked call in progress.
struct Call {
  Collective collective;
  uint64_t sequence = 0;   ///< calls of this communicator before it (messages are counted separately)
  uint64_t record_id = 0;  ///< in the flight recorder
  const ActionLabel* action = nullptr;  ///< null: no action was set
};

class CheckedCommunicator : public Communicator {
 public:
  WorkPtr all_gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts) final;
  WorkPtr reduce_scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts,
                         ReduceOptions options) final;
  WorkPtr all_reduce(at::Tensor output, at::Tensor input, ReduceOptions options) final;
  WorkPtr broadcast(at::Tensor tensor, int root) final;
  WorkPtr reduce(at::Tensor output, at::Tensor input, int root, ReduceOptions options) final;
  WorkPtr gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts, int root) final;
  WorkPtr scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts, int root) final;
  WorkPtr all_to_all(at::Tensor output, at::Tensor input, std::span<const int64_t> output_counts,
                     std::span<const int64_t> input_counts) final;
  WorkPtr send(at::Tensor tensor, int peer) final;
  WorkPtr receive(at::Tensor tensor, int peer) final;
  WorkPtr barrier() final;
  void be_patient(bool patient) final { *group_.patient = patient; }
  TrafficCount traffic(Operation operation) const final { return traffic_[static_cast<size_t>(operation)]; }

 protected:
  explicit CheckedCommunicator(Group group);

  /// Starts a call that has passed its checks. The backend calls finished() or failed() once for each call.
  virtual WorkPtr start(Call call) = 0;
  virtual at::DeviceType device() const { return at::kCPU; }

  /// Bytes sent for each element of a sum's input: the size of its dtype, unless the backend compresses.
  virtual int64_t term_bytes(const Collective& call) const;

  const Group& group() const { return group_; }
  /// Does allocate_shared for backends whose ranks share no memory.
  SharedBuffer allocate_private(int64_t bytes);
  /// `bytes` rounded up to whole pages, for allocate_shared.
  /// Errors    UsageError for a negative size
  int64_t whole_pages(int64_t bytes) const;
  void finished(const Call& call) const;
  void failed(const Call& call) const;
  /// Keeps the vectors of a finished call, so that later calls need not allocate.
  void recycle(Call&& call);
  /// Checks, numbers and records `collective`.
  Call make_call(Collective collective);

  std::vector<std::shared_ptr<Mapping>> mappings_;  ///< what allocate_shared has given

 private:
  std::vector<int64_t> copy(std::span<const int64_t> counts);
  WorkPtr run(Collective collective) { return start(make_call(std::move(collective))); }

  Group group_;
  std::vector<std::vector<int64_t>> spare_counts_;
  uint64_t num_collectives_ = 0, num_messages_ = 0;
  std::array<TrafficCount, 12> traffic_{};  ///< by Operation
};

/// A Work that was complete before the call returned.
WorkPtr completed_work();

/// The time since `start`, for throw_comm_error.
inline std::chrono::milliseconds elapsed_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
}

/// "[comm] reduce_scatter #17 of group 'shard' in ReduceGradient(block 3) of step 12 on rank 0 (global rank 0) failed
/// after 12 ms: <reason>"; `peer` is the group rank at fault, -1 when unknown.
[[noreturn]] void throw_comm_error(const Group& group, const Call& call, int peer, std::chrono::milliseconds elapsed,
                                   const std::string& reason);

/// The same for failures before the first call; `operation` is "connect".
[[noreturn]] void throw_comm_error(const Group& group, const std::string& operation, int peer,
                                   std::chrono::milliseconds elapsed, const std::string& reason);

}  // namespace trireme::comm
