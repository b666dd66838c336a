// The validator: proves a placed step before it starts. Every rule it checks is one that, broken, would be a hang,
// a wrong number or an overwritten value at run time.
#pragma once

#include <string>
#include <vector>

#include "trireme/schedule/placement.h"
#include "trireme/schedule/queue_model.h"
#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

/// Rules of one rank's placed list: no value is read before it is written or after its life; no two values alive
/// together share bytes; every value lies inside its region; each gradient slot is reduced exactly once, after its
/// last writer; each asynchronous action completes after it starts.
/// Returns one sentence for each broken rule (empty: the list is right).
std::vector<std::string> validate_list(const Schedule& schedule, const Arena& arena);

/// The rules of all ranks together: every list is right, and the queue model reaches the end.
std::vector<std::string> validate_ranks(const std::vector<RankProgram>& programs, const Arena& arena);

}  // namespace trireme::schedule
