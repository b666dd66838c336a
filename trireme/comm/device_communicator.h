// What all communicators of tensors on the rank's GPU share: memory, calls whose work is issued to streams, and the
// Work of such a call.
//
// A call comes after what the caller's current stream holds at that time. Work::wait() makes the caller's current
// stream wait for the call's end; it blocks the host only until the call is on a stream (with NCCL and in a group of
// one it is when the call returns, thread ranks must all have called). Work::poll() asks whether the GPU is through.
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <deque>

#include "trireme/comm/checked_communicator.h"

namespace trireme::comm {

/// A call whose work goes to a stream that is not the caller's.
struct DeviceCall {
  /// Comes after what is on the current stream now.
  DeviceCall(std::shared_ptr<const Group> group, Call call);

  std::chrono::milliseconds elapsed() const;
  /// To the flight recorder: once for each call.
  void record_end(bool failed) const;
  /// Gives up the tensors, which must live until the stream is through, or until what comes next on the stream that
  /// they are from comes after it.
  void release();

  std::shared_ptr<const Group> group;
  Call call;
  std::chrono::steady_clock::time_point start;
  c10::cuda::CUDAStream caller;
  at::cuda::CUDAEvent ready;  ///< behind what the caller's stream held
  std::shared_ptr<at::cuda::CUDAEvent> done;  ///< behind the call's own work; null until that is on a stream
};

using DeviceCallPtr = std::shared_ptr<DeviceCall>;

/// Keeps calls, and with them their tensors, until the GPU is through: a Work may be destroyed earlier, and a call that
/// has failed may have part of its work on a stream all the same.
class CallsInFlight {
 public:
  ~CallsInFlight();
  void add(DeviceCallPtr issued) { keep(issued, issued->done); }
  /// Keeps `call` until `end`, which stands behind all that the call has put on a stream, has been passed.
  void keep(DeviceCallPtr call, std::shared_ptr<at::cuda::CUDAEvent> end);
  /// The same for a call that failed while it was put on `stream`.
  void keep_failed(DeviceCallPtr call, const c10::cuda::CUDAStream& stream) noexcept;
  /// Whether the GPU is through with all of them.
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

  /// True when the call is on a stream; true for ever, then.
  /// Errors    CommError when it has failed
  virtual bool is_issued() = 0;
  /// Returns when is_issued() would be true.
  virtual void wait_until_issued() = 0;

 private:
  DeviceCallPtr call_;
};

class DeviceCommunicator : public CheckedCommunicator {
 public:
  /// Memory of this rank alone, for both kinds.
  SharedBuffer allocate_shared(int64_t bytes, bool host_shared) final;

 protected:
  explicit DeviceCommunicator(Group group);

  at::DeviceType device() const final { return at::kCUDA; }
  WorkPtr start(Call call) final;

  /// Starts a call; what it throws but Error becomes a CommError. A call that is not refused is recorded as ended by
  /// the backend.
  virtual WorkPtr issue(Call call) = 0;

  const std::shared_ptr<const Group>& shared_group() const { return shared_group_; }

 private:
  std::shared_ptr<const Group> shared_group_;
  std::vector<at::Tensor> memory_;
};

}  // namespace trireme::comm
