// A batch of messages between ranks of one MPI communicator: all are posted, then wait() waits for all. MPI has no wait
// with a timeout, so wait() tests the batch repeatedly. Between tests it yields to other threads, and later sleeps.
#pragma once

#include "trireme/comm/mpi/world.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <vector>

namespace trireme::comm {

class MpiMessages {
 public:
  /// Tensors are sent in parts of this size: MPI counts bytes in an int, and each part that arrives is progress, which
  /// resets the timeout.
  static constexpr int64_t kPartBytes = 4 << 20;

  explicit MpiMessages(MPI_Comm comm) : comm_(comm) {}
  /// Cancels receives that have not completed. Memory that MPI may still use is kept until the process ends.
  ~MpiMessages();
  MpiMessages(const MpiMessages&) = delete;
  MpiMessages& operator=(const MpiMessages&) = delete;

  /// `flat` is contiguous. Messages of one pair of ranks and tag arrive in the order they were posted.
  void send(const at::Tensor& flat, int peer, int tag) { post(flat, peer, tag, false); }
  void receive(const at::Tensor& flat, int peer, int tag) { post(flat, peer, tag, true); }

  /// Returns when all messages are complete.
  /// Errors    TransportFailure if MPI reports one, if `stopping` becomes true, or if nothing has been sent or received
  ///           for `timeout`. The error names a peer that has not sent, or else one that has not received
  void wait(std::chrono::milliseconds timeout, const std::atomic<bool>& stopping);

  /// Peers whose messages have not all arrived, each once, in the order of their receives.
  std::vector<int> missing() const;

 private:
  struct Part {
    int peer;
    bool received;
  };

  void post(const at::Tensor& flat, int peer, int tag, bool receives);
  int test();
  int peer_at_fault() const;

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<Part> parts_;  // by request
  std::vector<at::Tensor> tensors_;
  int num_left_ = 0;
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace trireme::comm
