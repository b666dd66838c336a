// TransferQueue: a thread that runs one job after the other beside the computation.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "trireme/base/crew.h"
#include "trireme/comm/communicator.h"

namespace trireme::engine {

class TransferQueue {
 public:
  TransferQueue();
  /// Ends behind the job under way; those behind it do not run.
  ~TransferQueue();

  /// The job's work: wait() throws what the job has thrown. After such a job no other runs, and all throw the same.
  comm::WorkPtr post(std::function<void()> job);

 private:
  struct State;
  class Transfer;
  void run();

  std::shared_ptr<State> state_;
  std::unique_ptr<base::Crew> thread_;
};

}  // namespace trireme::engine
