// What a save is going to write, worked out before a byte is written: files, places of tensors, small files, bytes.
//
// Pure: every rank computes the same plan from its own request, and compares it with the others' (agree_on_plan).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/checkpoint/save.h"

namespace trireme::checkpoint {

struct SavePlan {
  std::vector<FilePlan> files;                 ///< the model's, then the optimizer's
  std::vector<int64_t> first_block;  ///< number of each file's first block, counted through; then their number
  std::map<std::string, TensorPlace> tensors;  ///< of both
  std::map<std::string, std::string> texts;  ///< small files, which rank 0 writes
  int64_t needed_bytes = 0;  ///< on the disk, with what folder and manifest take

  int64_t num_blocks() const { return first_block.back(); }
};

/// Errors    CheckpointError: a negative step, names that cannot be files, text that is not JSON, tensors given twice,
///           pieces that do not fit; UsageError for max_shard_bytes < 1
SavePlan plan_save(const SaveRequest& request);

/// Compares the ranks' plans, and sees to it that every element is given exactly once over all ranks.
///
/// Ordering  every rank of `world` must call
/// Errors    CheckpointError, the same on every rank
void agree_on_plan(const SaveRequest& request, const SavePlan& plan, comm::Communicator& world);

}  // namespace trireme::checkpoint
