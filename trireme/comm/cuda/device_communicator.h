// What all communicators of GPU tensors share: memory, calls that run on streams, and the Work of such a call.
//
// A call runs after the work that the caller's current stream holds at that time. Work::wait() makes the caller's
// current stream wait for the end of the call. It blocks the host only until the call is on a stream. With NCCL, and in
// a group of one, the call is on a stream when it returns; with thread ranks all ranks must have called. Work::poll()
// asks whether the GPU has finished.
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <deque>

#include "trireme/comm/checked_communicator.h"

namespace trireme::comm {

/// A call whose work goes to another stream than the caller's.
struct DeviceCall {
  /// The call runs after what is on the current stream now.
  DeviceCall(std::shared_ptr<const Group> group, Call call);

  std::chrono::milliseconds elapsed() const { return elapsed_since(start); }
  /// Tells the flight recorder, once for each call.
  void record_end(bool failed) const;
  /// Releases the tensors. They must live until the stream has finished the call, or until later work on their own
  /// stream is ordered after it.
  void release();

  std::shared_ptr<const Group> group;
  Call call;
  std::chrono::steady_clock::time_point start;
  c10::cuda::CUDAStream caller;
  at::cuda::CUDAEvent ready;  ///< the end of the earlier work on the caller's stream
  std::shared_ptr<at::cuda::CUDAEvent> done;  ///< the end of the call's own work; null until that is on a stream
};

using DeviceCallPtr = std::shared_ptr<DeviceCall>;

/// Keeps calls and their tensors until the GPU has finished them. A Work may be destroyed earlier, and part of a failed
/// call may still be on a stream.
class CallsInFlight {
 public:
  ~CallsInFlight();
  void add(DeviceCallPtr issued) { keep(issued, issued->done); }
  /// Keeps `call` until the GPU has reached `end`, an event after all of the call's work.
  void keep(DeviceCallPtr call, std::shared_ptr<at::cuda::CUDAEvent> end);
  /// The same for a call that failed while its work was put on `stream`.
  void keep_failed(DeviceCallPtr call, const c10::cuda::CUDAStream& stream) noexcept;
  /// Whether the GPU has finished all calls.
  bool are_through();

 private:
  struct Kept {
    DeviceCallPtr call;
    std::shared_ptr<at::cuda::CUDAEvent> end;
  };
  std::deque<Kept> calls_;
};

class DeviceWork : public Work {
 public:
  bool poll() final;
  void wait() final;

 protected:
  explicit DeviceWork(DeviceCallPtr call) : call_(std::move(call)) {}

  /// True once the call is on a stream.
  /// Errors    CommError when it has failed
  virtual bool is_issued() = 0;
  /// Returns when is_issued() would be true.
  virtual void wait_until_issued() = 0;

 private:
  DeviceCallPtr call_;
};

class DeviceCommunicator : public CheckedCommunicator {
 public:
  /// Gives memory of this rank alone, whatever `host_shared` is.
  SharedBuffer allocate_shared(int64_t bytes, bool host_shared) final;

 protected:
  explicit DeviceCommunicator(Group group);

  at::DeviceType device() const final { return at::kCUDA; }
  WorkPtr start(Call call) final;

  /// Starts a call. An exception other than Error becomes a CommError. The backend records the end of each call that it
  /// does not refuse.
  virtual WorkPtr issue(Call call) = 0;

  const std::shared_ptr<const Group>& shared_group() const { return shared_group_; }

 private:
  std::shared_ptr<const Group> shared_group_;
  std::vector<at::Tensor> memory_;
};

}  // namespace trireme::comm
