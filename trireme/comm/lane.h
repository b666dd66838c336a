// A lane: jobs done one after the other by a thread of its own, for transports whose waits cannot be polled.
// Each job is a Work that the caller polls or waits for; what it throws is thrown there.
#pragma once

#include "trireme/comm/communicator.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace trireme::comm {

class LaneWork : public Work {
 public:
  /// Waits no longer than `limit`; true when it is done. Throws what the job threw.
  virtual bool wait_for(std::chrono::milliseconds limit) = 0;
};

class Lane {
 public:
  Lane();
  /// Jobs that have not begun are dropped (their works throw CommError); the one under way is waited for, so
  /// whoever owns the lane first makes it return.
  ~Lane();

  std::shared_ptr<LaneWork> run(std::function<void()> job);
  /// Time in jobs so far.
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
