// One rank's failure becomes every rank's: the collective form of try and catch.
//
// Reading and writing files fail on one rank alone (a full disk, a bad sector), while the others would go on
// into a collective and wait there. Wrap such work in agree(): all ranks return, or all throw.
#pragma once

#include <functional>

#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

/// Runs `work` on this rank and returns when it has succeeded on every rank; also a barrier.
///
/// Cost      one all_reduce of 8 bytes; on failure two small broadcasts more
/// Ordering  every rank of `world` must call; `work` must not communicate in a way that its failure would break
/// Errors    CheckpointError (StorageError where the file system failed), the same on every rank: the message of the
///           lowest rank that failed;
///           CommError passes through unchanged (the group is then unusable)
void agree(comm::Communicator& world, const std::function<void()>& work);

}  // namespace trireme::checkpoint
