// A lane runs jobs one after the other in its own thread, for transports whose waits block. For each job the caller
// gets a Work to poll or to wait for. The Work rethrows the job's exception.
#pragma once

#include "trireme/comm/communicator.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace trireme::comm {

/// A failure of a transport whose waits block; LaneCommunicator turns it into a CommError.
struct TransportFailure : std::runtime_error {
  TransportFailure(int peer_, const std::string& reason) : std::runtime_error(reason), peer(peer_) {}
  int peer;  ///< group rank at fault; -1: unknown
};

class LaneWork : public Work {
 public:
  /// Waits no longer than `limit`; true when the job is done. Rethrows the job's exception.
  virtual bool wait_for(std::chrono::milliseconds limit) = 0;
};

class Lane {
 public:
  Lane();
  /// Drops jobs that have not begun (their works throw CommError) and waits for the current job. So the lane's owner
  /// must first make that job return.
  ~Lane();

  std::shared_ptr<LaneWork> run(std::function<void()> job);
  /// Time spent in jobs so far.
  double busy_seconds() const;

 private:
  class Job;
  void loop();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool stopping_ = false;
  double busy_ = 0;
  std::thread thread_;
};

}  // namespace trireme::comm
