// How much of a core's time each computing thread gets. What is measured in windows of a millisecond knows nothing of
// time slices: where ranks x threads are more than cores, such rates add up to more than the machine has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::train {

/// What one rank wants to compute on.
struct CoreClaim {
  int64_t host = 0;             ///< equal for ranks of one machine
  int64_t threads = 1;
  std::vector<int> cpus;        ///< logical ones that the rank may run on; empty: unknown
  std::optional<double> quota;  ///< CPUs' worth of time for all ranks of the host together (base::Cgroup)
};

/// In (0, 1]: the part of the time in which each of claim `mine`'s threads runs while all claims' threads want to.
/// Ranks on the same CPUs share them; pinned ranks share nothing. Threads of one core count as CPUs each: what they
/// take from each other is measured. Each rank's threads are taken to spread evenly over its CPUs.
double core_time(std::span<const CoreClaim> claims, size_t mine);

/// The same for this process among the ranks of `world`, each with `threads` of its own; every rank must call.
double core_time(comm::Communicator& world, int threads);

}  // namespace trireme::train
