// Tells whether a base model is still the one that an adapter was trained on.
#pragma once

#include <string>

#include "trireme/checkpoint/load.h"

namespace trireme::adapt {

/// A hash of the names, dtypes and shapes of a model's tensors, and of the first and last 64 KiB of each. Other files
/// with the same tensors (another size of files, a copy) have the same fingerprint; optimizer files do not count.
///
/// Cost      reads 128 KiB a tensor, of a folder with a manifest the blocks around them
/// Errors    CheckpointError as read_piece()
std::string fingerprint_of(const checkpoint::Checkpoint& checkpoint);

/// Tells whether a folder holds what it held, at the least cost: a hash of its manifest, or without one its
/// fingerprint. A copy without the manifest has another one.
/// Errors    CheckpointError as read_piece()
std::string mark_of(const checkpoint::Checkpoint& checkpoint);

}  // namespace trireme::adapt
