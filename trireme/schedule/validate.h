// The validator: proves a placed step before it starts. Every rule it checks is one that, broken, would be a hang,
// a wrong number or an overwritten value at run time. It reads the lists alone, so that a mistake of the passes
// cannot hide behind the same mistake here; tests/schedule/mutation_test.cpp damages lists at random and compares
// its verdict with an interpreter that runs them.
//
// A sentence names the action (#position and what it does), the rank where there are several, and the rule.
#pragma once

#include <string>
#include <vector>

#include "trireme/schedule/placement.h"
#include "trireme/schedule/queue_model.h"
#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

/// Rules of one rank's placed list:
/// - each action has a unit, group, micro-batch and queue that its kind can have, and uses values of its own;
/// - every pass of every local unit over every micro-batch is there once, forward before recompute before backward,
///   the weight half after the input half; each batch is loaded once;
/// - no value is read before it is written, while it is being written, after it was consumed or outside its life;
///   none is written twice, changed while it is read, or made for nobody;
/// - asynchronous actions are communication, and complete after they start;
/// - no two values alive together share bytes, unless one consumes the other; each lies in its region;
/// - each group's gradient is folded once per micro-batch (local accumulation: once), in the order of the
///   micro-batches, the first sum starts it and the others add; then replicas, tied stages, norm, clip, step.
/// Returns one sentence for each broken rule (empty: the list is right).
/// Cost      O(uses x values alive at once)
std::vector<std::string> validate_list(const Schedule& schedule, const Arena& arena);

/// The rules between ranks, index = global rank; the lists need no placement: the ranks of a pipeline run every unit
/// once between them; every receive meets a send of the same bytes, unit and micro-batch; the members of a group
/// come to each collective, and to computation that talks inside, in the same order; and the queue model reaches the
/// end.
std::vector<std::string> validate_meetings(const std::vector<RankProgram>& programs);

/// A rank's list with the arena it is placed in.
struct RankList {
  RankProgram program;
  const Arena* arena = nullptr;
};

/// Every rank's list and the rules between them, index = global rank.
std::vector<std::string> validate_ranks(const std::vector<RankList>& ranks);

}  // namespace trireme::schedule
