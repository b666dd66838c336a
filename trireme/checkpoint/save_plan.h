// SavePlan: what a save will write: files, each tensor's place, small files, bytes. It is computed before any write.
//
// plan_save is pure: every rank computes the same plan from its own request. agree_on_plan checks that they are equal.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/checkpoint/save.h"

namespace trireme::checkpoint {

struct SavePlan {
  std::vector<FilePlan> files;                 ///< the model's, then the optimizer's
  std::vector<int64_t> first_block;  ///< each file's first checksum block, counted over all files; then the block count
  std::map<std::string, TensorPlace> tensors;  ///< of model and optimizer
  std::map<std::string, std::string> texts;  ///< small files, which rank 0 writes
  int64_t needed_bytes = 0;  ///< disk space, including the folder and the manifest

  int64_t num_blocks() const { return first_block.back(); }
  int64_t file_bytes() const;  ///< of all files but the manifest
};

/// Errors    CheckpointError: a negative step, names that no file can have, text that is not JSON, a name given to two
///           tensors, pieces whose tensor, range or dtype does not fit; UsageError for max_shard_bytes < 1
SavePlan plan_save(const SaveRequest& request);

/// Compares the plans of all ranks, and checks that their pieces together hold every element exactly once.
///
/// Ordering  every rank of `world` must call
/// Errors    CheckpointError, the same on every rank
void agree_on_plan(const SaveRequest& request, const SavePlan& plan, comm::Communicator& world);

}  // namespace trireme::checkpoint
