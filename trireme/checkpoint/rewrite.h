// Copies a checkpoint or a model folder with other file sizes or another dtype, completely or only the weights.
//
// This is a save on one rank that reads its pieces from the other folder while it writes. It takes a few MiB of memory
// and verifies everything that it reads. The new folder has a manifest and appears by one rename.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "trireme/checkpoint/layout.h"
#include "trireme/checkpoint/save.h"

namespace trireme::checkpoint {

struct RewriteOptions {
  int64_t max_shard_bytes = kDefaultShardBytes;
  std::optional<Dtype> dtype;  ///< of the model's float tensors; a wider one than stored takes the master weights
  bool weights_only = false;  ///< leaves out optimizer state and trireme_state.json
  std::function<void(const SaveProgress&)> progress = {};
};

/// Other files of the folder (tokenizer, templates, settings) are copied.
///
/// Cost      reads and writes every copied byte once; a few MiB of memory
/// Errors    CheckpointError: no checkpoint, damage, an existing target, a full disk. No new target is left then
SaveResult rewrite(const std::filesystem::path& from, const std::filesystem::path& to, const RewriteOptions& options);

}  // namespace trireme::checkpoint
