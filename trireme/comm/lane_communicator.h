// The common part of transports whose waits block. Calls run on lanes: one lane for collectives, and one for each peer
// and direction of messages. allocate_shared gives private memory. The first failure makes the group unusable.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/lane.h"

namespace trireme::comm {

class LaneCommunicator : public CheckedCommunicator {
 public:
  SharedBuffer allocate_shared(int64_t bytes, bool) final { return allocate_private(bytes); }
  double background_seconds() const final;

 protected:
  explicit LaneCommunicator(Group group);

  /// Both are called on a lane, in the order of its calls. A TransportFailure breaks the group.
  virtual void run_collective(const Call& call) = 0;
  virtual void run_message(const Call& call) = 0;
  /// Called before the group becomes unusable.
  virtual void gave_up() {}

  /// The derived class calls it first in its destructor, after it has made the current calls return.
  void end_lanes();
  bool is_broken() const;

 private:
  WorkPtr start(Call call) final;
  Lane& lane_of(const Call& call);
  void check_usable(const Call& call) const;
  [[noreturn]] void break_group(const Call& call, const TransportFailure& failure, std::chrono::milliseconds elapsed);

  mutable std::mutex mutex_;  // guards broken_
  std::string broken_;
  // Last members, so that they are destroyed first.
  std::unique_ptr<Lane> collectives_;
  std::map<std::pair<Operation, int>, std::unique_ptr<Lane>> messages_;
};

}  // namespace trireme::comm
