// What the ranks of one machine plan together, known before any of them starts: the launcher weighs it against the
// machine's memory (launch/room.h).
#pragma once

#include <cstdint>

#include "trireme/config/settings.h"

namespace trireme::train {

/// Plans the step without allocating it, and returns the bytes of host memory that the arenas of a machine's ranks take
/// together, if every rank plans as rank 0 does; 0 on GPUs, whose arenas are theirs.
///
/// Cost      a plan: milliseconds, more with many pipeline ranks and micro-batches
/// Errors    UsageError for what cannot work; where the copy for save.mode async is what does not fit in memory
int64_t plan_host(const config::Settings& settings);

}  // namespace trireme::train
