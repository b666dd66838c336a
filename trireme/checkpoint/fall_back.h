// Loads a checkpoint, or an older one if it is damaged. Damage in tensors is only found while the tensors are read.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "trireme/checkpoint/good.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

/// Returns the checkpoint to try instead of `damaged`, or nothing if the damage is to be an error. Only for rank 0.
using OlderCheckpoint = std::function<std::optional<std::filesystem::path>(const std::filesystem::path& damaged)>;

/// Calls load(folder). As long as `load` throws DamagedError, calls it again with the folder that `older` returns.
/// `load` must succeed on all ranks, or throw the same error on all (agree.h). Every rank must call load_or_older.
///
/// @returns  the folder that was loaded; the damaged folders tried before are added to `passed_over`
/// Errors    those of the last `load`
std::filesystem::path load_or_older(std::filesystem::path folder, comm::Communicator& world,
                                    const OlderCheckpoint& older, std::vector<PassedOver>& passed_over,
                                    const std::function<void(const std::filesystem::path& folder)>& load);

}  // namespace trireme::checkpoint
