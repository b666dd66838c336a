// The queue model simulates how the lists of all ranks run together. Each rank runs its list in order. An action on a
// communication queue is put at the end of that queue. A collective finishes when it is at the head of the queue of
// every member; a transfer to or from a tier is alone in its queue. A message finishes when its send and its receive
// are at the heads of their queues (rendezvous). An action waits for the asynchronous actions that must be complete
// before it. A computation that communicates inside (tp, cp) finishes when all members have reached it. Without costs
// the model answers whether all ranks reach the end (deadlock or not); with costs it also answers when.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

/// Ranks that communicate, in the order of their ranks in the group. Copies share the numbers: thousands of ranks
/// have the same groups.
class Members {
 public:
  Members() = default;
  Members(std::vector<int> ranks) : ranks_(std::make_shared<const std::vector<int>>(std::move(ranks))) {}
  operator std::span<const int>() const { return ranks_ ? std::span<const int>(*ranks_) : std::span<const int>(); }
  auto begin() const { return std::span<const int>(*this).begin(); }
  auto end() const { return std::span<const int>(*this).end(); }

 private:
  std::shared_ptr<const std::vector<int>> ranks_;
};

/// One rank's list, and the ranks with which it shares each kind of queue. Ranks are indices in the vector of programs.
struct RankProgram {
  const Schedule* schedule = nullptr;
  std::map<QueueKind, Members> members;  ///< in the queue's collectives; none or one: waits for nobody
  std::vector<int> stages;  ///< the program of each pipeline rank
  comm::PerUnitAxis<std::vector<int>> inside = {};  ///< programs that communicate inside computations, by axis
};

/// What an action takes, in seconds.
struct ActionCost {
  double compute = 0;  ///< of the rank's own thread: all of a computation; of a communication what starting it takes,
                       ///< or all of it where the ranks' cores move the bytes
  double transfer = 0;  ///< of a communication, at the head of its queue
};

/// What the actions of each list take, in their order. A list that is not here takes no time.
using Costs = std::map<const Schedule*, std::vector<ActionCost>>;

/// Costs from three numbers alone.
struct Rates {
  double compute_scale = 1;  ///< seconds per unit of Action::cost
  double latency = 0;  ///< of a message or collective
  double seconds_per_byte = 0;
};
Costs costs_of(const std::vector<RankProgram>& programs, const Rates& rates);

/// Why ranks do not reach the end: lines of text that say which rank waits for what.
struct Stall {
  std::vector<std::string> lines;
};

struct Span {
  double begin = 0, end = 0;
};

struct Simulation {
  std::optional<Stall> stall;
  std::vector<std::vector<Span>>
      spans;  ///< by program and action; begin: the computation starts or the communication is posted
  double length() const;
  double computing(const RankProgram& program, int index) const;  ///< time of the program's computations
};

/// Runs the programs on the model.
/// Cost      O(actions x members)
Simulation simulate(const std::vector<RankProgram>& programs, const Costs& costs);
inline Simulation simulate(const std::vector<RankProgram>& programs, const Rates& rates) {
  return simulate(programs, costs_of(programs, rates));
}

/// Runs the model without costs: nothing if all ranks reach the end.
std::optional<Stall> run_queue_model(const std::vector<RankProgram>& programs);

}  // namespace trireme::schedule
