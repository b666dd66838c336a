// The queue model: how the lists of all ranks run together. Each rank goes through its list in order. An action on
// a communication queue is put at the end of that queue; a collective finishes when it is at the head of the queue
// of every member, a message when its send and its receive are at the heads of theirs (rendezvous). An action waits
// for the asynchronous actions that have to be complete before it; computation that talks to its own group inside
// finishes when all members have come to it. Without costs the model answers one question: do all ranks reach the
// end? With costs it tells when.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

/// One rank's list, and the programs (by index) with which it shares each kind of queue.
struct RankProgram {
  const Schedule* schedule = nullptr;
  std::map<QueueKind, std::vector<int>> members;   ///< of collectives; none or one: nobody to wait for
  std::vector<int> stages;                         ///< by pipeline rank: the program there
  std::vector<int> tp, cp;                         ///< computation that talks inside waits for these
};

/// What actions cost; all zero for validation.
struct Costs {
  double compute_scale = 1;      ///< seconds per unit of Action::cost
  double latency = 0;            ///< of a message or collective
  double seconds_per_byte = 0;
};

/// Why the ranks do not reach the end: who waits for what, as lines of text.
struct Stall {
  std::vector<std::string> lines;
};

struct Span {
  double begin = 0, end = 0;
};

struct Simulation {
  std::optional<Stall> stall;
  std::vector<std::vector<Span>> spans;   ///< by program and action; begin: computation starts, message is posted
  double length() const;
  double computing(const RankProgram& program, int index) const;  ///< sum over its computations
};

/// Runs the programs on the model.
/// Cost      O(actions x members)
Simulation simulate(const std::vector<RankProgram>& programs, const Costs& costs);

/// Without costs: why not all ranks reach the end, if they do not.
std::optional<Stall> run_queue_model(const std::vector<RankProgram>& programs);

}  // namespace trireme::schedule
