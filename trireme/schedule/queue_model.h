// The queue model: how the lists of all ranks run together. Each rank goes through its list in order. An action on
// a communication queue is put at the end of that queue and starts when it is at its head; a collective finishes
// when it is at the head of the queue of every member. An action waits for the asynchronous actions that have to
// be complete before it. The model answers one question: do all ranks reach the end?
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

/// One rank's list, and the global ranks that share each of its communication queues.
struct RankProgram {
  const Schedule* schedule = nullptr;
  std::map<Queue, std::vector<int>> members;
};

/// Why the ranks do not reach the end: who waits for what, as lines of text.
struct Stall {
  std::vector<std::string> lines;
};

/// Runs the programs (index = global rank) on the model.
/// Cost      O(actions x ranks)
std::optional<Stall> run_queue_model(const std::vector<RankProgram>& programs);

}  // namespace trireme::schedule
