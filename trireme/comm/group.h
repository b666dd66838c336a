// What every backend needs to know about its group: name, ranks, timeout and flight recorder.
#pragma once

#include "trireme/comm/communicator.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::comm {

class FlightRecorder;

struct Group {
  std::string name = "world";
  int rank = 0;
  int size = 1;
  std::vector<int> global_ranks;  ///< by group rank; empty: the group is the world
  std::chrono::milliseconds timeout{300'000};  ///< longest wait without any progress
  std::shared_ptr<std::atomic<bool>> patient = std::make_shared<std::atomic<bool>>(false);  ///< Patience
  std::shared_ptr<FlightRecorder> recorder;    ///< may be null

  /// The longest wait without any progress now.
  std::chrono::milliseconds longest_wait() const { return *patient ? std::chrono::hours(24 * 365) : timeout; }
  int global_rank(int k) const { return global_ranks.empty() ? k : global_ranks[k]; }
};

/// Of name and ranks: equal on all of them.
uint64_t hash_of(const Group& group);

/// "rank 1 (global rank 3)": how messages name a member of the group.
std::string name_rank(const Group& group, int k);

}  // namespace trireme::comm
