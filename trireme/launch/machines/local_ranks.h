// The first meeting of ranks that people start by hand, at the address where their store will be. Each says which host
// it is on, or why it ends: no launcher ends the other ranks when one of them ends. One that has other settings
// than rank 0 is refused here (same_settings.h).
//
// So ranks find who shares a host if their environment holds only RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Only
// then does a rank know which GPU and how many threads are its own. A LOCAL_RANK beside these must be what is found.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "trireme/launch/identity/environment.h"
#include "trireme/launch/machines/meeting_file.h"
#include "trireme/settings/parse.h"

namespace trireme::launch {

/// Rank 0 starts the server of the job's store for it, and leaves it in `environment`: it serves the job from then on.
/// Fills in local_rank, local_world_size, node_rank and num_nodes of `environment` if they are unknown. Its address and
/// token are known.
///
/// Cost      2 world_size small messages a rank, once
/// Errors    UsageError if a rank was refused, has other settings, or another LOCAL_RANK than is found, with its
///           sentence; that of tell_others() if a rank failed; Error if the store is not reached, or a rank does not
///           come within launch.join_timeout; Stopped if a stop is requested meanwhile
void find_local_ranks(RankEnvironment& environment, const Settings& settings);

/// Whether these ranks were started one by one, without a launcher that ends all when one ends.
bool are_by_hand(const RankEnvironment& environment);

/// For a rank of these that ends before it comes to find_local_ranks(): meets the others and tells them why. They end
/// with its exit code. Returns when all know, and at the latest five seconds after they could come. Throws nothing.
void tell_others(RankEnvironment environment, MeetingOptions options, const std::exception& why);

/// The place of a rank among the hosts of all ranks, by rank.
void place_among(const std::vector<std::string>& hosts, RankEnvironment& environment);

/// Of ranks that say their LOCAL_RANK (else an empty text), the first whose number on its host is another: why all are
/// refused. Empty if there is none.
std::string unlike_said(const std::vector<std::string>& hosts, const std::vector<std::string>& said);

/// Guides start one launcher a machine, with RANK as the number of the machine's first rank and `devices` as the number
/// of ranks that it starts. Then this process is no rank: the machine's number and the meeting place become settings,
/// and `environment` that of a process which no launcher started. A process that has a LOCAL_RANK is a rank.
/// Errors    UsageError if devices does not divide RANK and WORLD_SIZE
void take_over_first_rank(ParsedSettings& parsed, RankEnvironment& environment);

}  // namespace trireme::launch
