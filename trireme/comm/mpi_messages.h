// A batch of messages between ranks of one MPI communicator: posted at once, then waited for together. MPI has no
// wait with a timeout, so wait() tests the batch again and again, first giving way to other threads, later sleeping.
#pragma once

#include "trireme/comm/mpi_world.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <vector>

namespace trireme::comm {

class MpiMessages {
 public:
  /// Tensors travel in parts of this size: MPI counts bytes in an int, and each part that arrives is progress, which
  /// the timeout asks for.
  static constexpr int64_t kPartBytes = 4 << 20;

  explicit MpiMessages(MPI_Comm comm) : comm_(comm) {}
  /// Takes back what has not been received; memory that MPI still holds is kept until the process ends.
  ~MpiMessages();
  MpiMessages(const MpiMessages&) = delete;
  MpiMessages& operator=(const MpiMessages&) = delete;

  /// `flat` is contiguous. Messages of one pair of ranks and tag arrive in the order they were posted.
  void send(const at::Tensor& flat, int peer, int tag);
  void receive(const at::Tensor& flat, int peer, int tag);

  /// Returns when all are through.
  /// Errors    TransportFailure when MPI reports one, when `stopping` becomes true, or when nothing has come or gone
  /// for
  ///           `timeout`; it names a peer that has not sent (else one that has not received)
  void wait(std::chrono::milliseconds timeout, const std::atomic<bool>& stopping);

  /// Peers whose messages have not all come, each once, in the order of their receives.
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
