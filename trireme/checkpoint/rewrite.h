// Writes a checkpoint or a model folder anew, with other file sizes or another dtype, whole or the weights alone.
//
// It is a save on one rank whose pieces are read from the other folder while they are written: memory stays at a few
// MiB, everything read is verified, and the new folder appears by one rename with a manifest of its own.
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
  std::optional<Dtype> dtype;  ///< of the model's float tensors; wider ones than stored come from the master weights
  bool weights_only = false;   ///< leaves out optimizer state and trireme_state.json
  std::function<void(const SaveProgress&)> progress = {};
};

/// Files of the folder that are not weights (tokenizer, templates, settings) come along.
///
/// Cost      reads and writes every byte kept once; a few MiB of memory
/// Errors    CheckpointError: no checkpoint, damage, a target that exists, a full disk; the target is then not there
SaveResult rewrite(const std::filesystem::path& from, const std::filesystem::path& to, const RewriteOptions& options);

}  // namespace trireme::checkpoint
