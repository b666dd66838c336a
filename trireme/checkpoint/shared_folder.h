// Checks at the start of a run that all ranks see the same folder. Otherwise hosts that have different folders of the
// same name would fail at the first save, hours later.
#pragma once

#include <filesystem>

#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

/// Creates `folder` if it is missing. Rank 0 writes a file with a random word there, every rank reads it, and rank 0
/// removes it.
///
/// Cost      one small file; ranks that do not see it look again for up to 3 s (network file systems may cache that a
///           name is missing)
/// Ordering  every rank of `world` must call
/// Errors    CheckpointError, the same on every rank: a folder that cannot be made or written; a rank that sees another
///           folder under this name (with its host)
void check_shared_folder(const std::filesystem::path& folder, comm::Communicator& world);

}  // namespace trireme::checkpoint
