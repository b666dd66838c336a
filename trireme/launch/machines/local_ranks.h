// Finds which ranks share a host, for ranks whose environment holds only RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT,
// as people export them by hand. The ranks meet once at the address where their store will be, and each says which host
// it is on. Only then does a rank know which GPU and how many threads are its own.
#pragma once

#include <string>
#include <vector>

#include "trireme/launch/identity/environment.h"
#include "trireme/settings/parse.h"

namespace trireme::launch {

/// Rank 0 starts the server of the job's store for it, and leaves it in `environment`: it serves the job from then on.
/// Fills in local_rank, local_world_size, node_rank and num_nodes of `environment`, whose address and token are known.
///
/// Cost      world_size small messages a rank, once
/// Errors    store::Unreachable and store::Refused as store::Client; Error if a rank does not come within
///           launch.join_timeout; Stopped if a stop is requested meanwhile
void find_local_ranks(RankEnvironment& environment, const LaunchSettings& settings);

/// The same from the hosts of all ranks, by rank.
void place_among(const std::vector<std::string>& hosts, RankEnvironment& environment);

/// Guides start one launcher a machine, with RANK as the number of the machine's first rank and `devices` as the number
/// of ranks that it starts. Then this process is no rank: the machine's number and the meeting place become settings,
/// and `environment` that of a process which no launcher started.
/// Errors    UsageError if devices does not divide RANK and WORLD_SIZE
void take_over_first_rank(ParsedSettings& parsed, RankEnvironment& environment);

}  // namespace trireme::launch
