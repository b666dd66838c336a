// How much of a core's time each computing thread gets. Rates measured within a millisecond do not notice time slices:
// if there are more threads than cores, such rates add up to more than the machine has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::observe {

/// The threads and CPUs of one rank.
struct CoreClaim {
  int64_t host = 0;             ///< equal for ranks of one machine
  int64_t threads = 1;
  std::vector<int> cpus;        ///< logical CPUs that the rank may run on; empty: unknown
  std::optional<double> quota;  ///< CPUs' worth of time for all ranks of the host together (base::Cgroup)
};

/// In (0, 1]: the fraction of the time that each thread of claim `mine` runs if the threads of all claims want to run.
/// Ranks on the same CPUs share them; pinned ranks share nothing. Hardware threads of one core count as full CPUs,
/// because the measurement already includes what they cost each other. A rank's threads spread evenly over its CPUs.
double core_time(std::span<const CoreClaim> claims, size_t mine);

/// The same for this process among the ranks of `world`, each with `threads` of its own; every rank must call.
double core_time(comm::Communicator& world, int threads);

}  // namespace trireme::observe
