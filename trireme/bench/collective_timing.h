// Times calls that all ranks make together, equally many on each. Every rank learns the slowest rank's times.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trireme/bench/measure.h"
#include "trireme/comm/communicator.h"

namespace trireme::bench {

/// Seconds of each call on the slowest rank. Every rank of `comm` must call it, with its own `call`.
std::vector<double> time_together(comm::Communicator& comm, const std::function<void()>& call, const Budget& budget);

/// Bytes a second (read plus written) that a copy between buffers of `bytes` moves while all ranks copy; the mean of
/// the ranks. Ranks that share a core share its rate.
double copy_together(comm::Communicator& comm, int64_t bytes);

}  // namespace trireme::bench
