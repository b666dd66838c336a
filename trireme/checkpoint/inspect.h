// Lists the contents of a folder of checkpoints. Reads names, sizes and headers, but no tensor.
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
  std::optional<int64_t> step;                     ///< from the manifest, or from the folder's name
  int64_t bytes = 0;                               ///< of all files in the folder
  std::optional<std::filesystem::file_time_type> saved;  ///< time of the newest file; nothing without files
  int64_t model_tensors = 0, optimizer_tensors = 0;
  std::string dtypes;                              ///< of the model's tensors: "F32", "BF16 F32"
  bool ours = false;                               ///< written by Trireme: it has or had a manifest
  Verdict verdict;                                 ///< whether it can be used
};

/// `folder` itself if it is a checkpoint or a model, else the step folders in it, newest first.
/// Errors    CheckpointError if it is neither
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);

/// The info of each of checkpoints_in(folder). Errors as there
std::vector<FolderInfo> list_checkpoints(const std::filesystem::path& folder);

/// True when the folder holds a .safetensors file.
bool holds_weights(const std::filesystem::path& folder);

/// True for the names of files that hold optimizer state.
bool is_optimizer_file(const std::filesystem::path& path);

/// The tensors of a checkpoint in the order of its files: the optimizer's if `optimizer`, otherwise all others.
std::vector<TensorSpec> tensors_in_order(const Checkpoint& checkpoint, bool optimizer);

}  // namespace trireme::checkpoint
