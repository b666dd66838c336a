// Copies of a rank's state, for saves that go on beside training: training stands still meanwhile, so that all of the
// rank's threads copy.
#pragma once

#include <cstdint>

#include "trireme/comm/fold.h"

namespace trireme::engine {

using CopyPiece = void (*)(void* to, const void* from, int64_t bytes);

/// Copies by all threads, in pieces of a MiB that each begin where the one before ends. `piece` must not throw.
void copy_on_all_threads(char* to, const void* from, int64_t bytes, CopyPiece piece = comm::stream_copy);

}  // namespace trireme::engine
