// Timing calls that all ranks make together, so that every rank makes as many and all know the slowest's time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trireme/bench/measure.h"
#include "trireme/comm/communicator.h"

namespace trireme::bench {

/// Seconds of a call, the slowest rank's each time. Every rank of `comm` calls it with a call of its own.
std::vector<double> time_together(comm::Communicator& comm, const std::function<void()>& call, const Budget& budget);

/// Bytes a second that a rank's copy moves (read plus written) in buffers of `bytes` while all ranks copy: their mean.
/// Ranks that share a core share its copies.
double copy_together(comm::Communicator& comm, int64_t bytes);

}  // namespace trireme::bench
