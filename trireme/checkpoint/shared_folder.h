// Do all ranks see the same folder? Asked at the start of a run: ranks on hosts that only agree on the folder's name
// would find out at the first save, hours later.
#pragma once

#include <filesystem>

#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

/// Makes `folder` where it is missing; rank 0 writes a file with a random word there, every rank reads it, and it is
/// removed again.
///
/// Cost      one small file; ranks that do not see it look again for up to 3 s (network file systems remember for a
/// while
///           that a name was missing)
/// Ordering  every rank of `world` must call
/// Errors    CheckpointError, the same on every rank: folder that cannot be made or written; host and rank that see
///           another folder under this name
void check_shared_folder(const std::filesystem::path& folder, comm::Communicator& world);

}  // namespace trireme::checkpoint
