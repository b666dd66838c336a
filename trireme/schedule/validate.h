// The validator checks a placed step before it starts. A broken rule would be a hang, a wrong number or an overwritten
// value at run time. The validator reads only the lists, not the passes' inputs, so that it does not repeat their
// mistakes. tests/schedule/mutation_test.cpp damages lists at random, and compares the validator's verdict with an
// interpreter that runs them.
//
// All functions return sentences. A sentence names the action ("#position name"), the rank if there are several, and
// the broken rule.
#pragma once

#include <string>
#include <vector>

#include "trireme/schedule/placement.h"
#include "trireme/schedule/queue_model.h"
#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

/// Rules of one rank's placed list:
/// - each action has a unit, group, micro-batch and queue that its kind can have, and uses its own values;
/// - every pass of every local unit over every micro-batch is there once: forward before recompute before backward, the
///   weight half after the input half; each batch is loaded once;
/// - no value is read before it is written, while it is being written, after it was consumed or outside its lifetime;
/// - no value is written twice, changed while it is read, or never read;
/// - asynchronous actions are communication, and complete after they start;
/// - actions use values in a tier through copies; a copy that changed is written back, before the next copy is made;
/// - no two values alive together share bytes, unless one consumes the other; each value lies in its region;
/// - each group's gradient is reduced once per micro-batch (local accumulation: once a step), in the order of the
///   micro-batches; the first reduction writes it, the others add. After that come replicas, tied stages, norm, clip
///   and step, in this order; in a list without a clip squares, step and norm.
/// Returns one sentence for each broken rule; none if the list is right.
/// Cost      O(uses x values alive at once)
std::vector<std::string> validate_list(const Schedule& schedule, const Arena& arena);

/// The rules between ranks; `programs` is indexed by global rank, and the lists need no placement:
/// - each unit runs on one rank of a pipeline;
/// - every receive has a send of the same bytes, unit and micro-batch;
/// - all members of a group reach its collectives, and computation that communicates inside, in the same order;
/// - all ranks reach the end in the queue model.
std::vector<std::string> validate_meetings(const std::vector<RankProgram>& programs);

/// A rank's list with the arena it is placed in.
struct RankList {
  RankProgram program;
  const Arena* arena = nullptr;
};

/// Checks every rank's list and the rules between ranks, and that ranks that share memory have the same values at the
/// same places there; `ranks` is indexed by global rank.
std::vector<std::string> validate_ranks(const std::vector<RankList>& ranks);

}  // namespace trireme::schedule
