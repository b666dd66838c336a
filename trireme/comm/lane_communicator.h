// What transports have in common whose waits block: calls run on lanes, one for collectives and one for the messages
// in each direction with each peer; memory for allocate_shared is private; the first failure makes the group unusable.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/lane.h"
#include "trireme/comm/mapping.h"
#include "trireme/comm/transport_failure.h"

namespace trireme::comm {

class LaneCommunicator : public CheckedCommunicator {
 public:
  SharedBuffer allocate_shared(int64_t bytes, bool host_shared) final;
  double background_seconds() const final;

 protected:
  explicit LaneCommunicator(Group group);

  /// Both on a lane, calls of one lane in order; a TransportFailure breaks the group.
  virtual void run_collective(const Call& call) = 0;
  virtual void run_message(const Call& call) = 0;
  /// Before the group is declared broken.
  virtual void gave_up() {}

  /// To be called first in the destructor of the class that runs calls, after it has made the one under way return.
  void end_lanes();
  bool is_broken() const;

  std::vector<std::shared_ptr<Mapping>> mappings_;  ///< what allocate_shared gave

 private:
  WorkPtr start(Call call) final;
  Lane& lane_of(const Call& call);
  void check_usable(const Call& call) const;
  [[noreturn]] void break_group(const Call& call, const TransportFailure& failure, std::chrono::milliseconds elapsed);

  mutable std::mutex mutex_;  // guards broken_
  std::string broken_;
  // Last, so that they end first.
  std::unique_ptr<Lane> collectives_;
  std::map<std::pair<Operation, int>, std::unique_ptr<Lane>> messages_;
};

}  // namespace trireme::comm
