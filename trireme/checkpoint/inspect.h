// What lies in a folder of checkpoints, from names, sizes and headers: no tensor is read.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/load.h"

namespace trireme::checkpoint {

struct FolderInfo {
  std::filesystem::path path;
  std::optional<int64_t> step;                     ///< of a manifest, or of the folder's name
  int64_t bytes = 0;                               ///< of all files in the folder
  std::optional<std::filesystem::file_time_type> saved;  ///< of the newest file; nothing: there is none
  int64_t model_tensors = 0, optimizer_tensors = 0;
  std::string dtypes;                              ///< of the model's tensors: "F32", "BF16 F32"
  bool ours = false;                               ///< it has a manifest, or had one
  Verdict verdict;                                 ///< whether it can be used
};

/// `folder` itself where it is a checkpoint or a model, else the step folders in it, newest first.
/// Errors    CheckpointError when there is neither
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);

/// What is known of each of checkpoints_in(folder). Errors as there
std::vector<FolderInfo> list_checkpoints(const std::filesystem::path& folder);

/// True for files that hold optimizer state.
bool is_optimizer_file(const std::filesystem::path& path);

/// The tensors of a checkpoint in the order of its files, those of the optimizer or the others.
std::vector<TensorSpec> tensors_in_order(const Checkpoint& checkpoint, bool optimizer);

}  // namespace trireme::checkpoint
