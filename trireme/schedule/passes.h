// The passes that make a training step: each adds or moves actions, none knows another's strategy.
//
//   units         load, forward and backward of every micro-batch (one pipeline stage)
//   recompute     a Recompute before each Backward that needs it
//   sharding      Unshard before each reader of a group; ReduceGradient after the last writer of its gradient
//   prefetch      Unshard `prefetch` compute actions earlier, ReduceGradient complete `reduce_lag` later
//   optimizer     loss and norm across ranks, clip, one Step for each group
//   values        what each action reads and writes
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

struct TensorDeclaration {
  std::string label;
  int64_t bytes = 0;
};

struct UnitDeclaration {
  std::string name;
  std::vector<int> groups;                ///< that it reads
  int64_t output_bytes = 0;               ///< 0 for the last unit
  std::vector<TensorDeclaration> saved, forward_work, backward_work;
  bool reads_parameters_in_backward = true;
  bool backward_includes_forward = false;
};

struct GroupDeclaration {
  std::string name;
  int64_t numel = 0;                      ///< of the flat layout
  int64_t owned = 0;                      ///< of this rank's shard (numel when not sharded)
};

enum class Recompute { none, full };

struct StepDeclaration {
  std::vector<UnitDeclaration> units;
  std::vector<GroupDeclaration> groups;
  int num_ranks = 1;                      ///< ranks that share the data
  bool shard = false;                     ///< parameters, gradients and optimizer state are sharded (ZeRO-3)
  int num_micro_batches = 1;              ///< of this rank and step
  int64_t tokens_per_micro_batch = 0;
  int64_t compute_bytes = 4, state_bytes = 4;  ///< of one element
  Recompute recompute = Recompute::none;
  int prefetch = 1;                       ///< compute actions between the start of an Unshard and its reader
  int reduce_lag = 1;                     ///< compute actions that a ReduceGradient may overlap
};

/// The list of one optimizer step. Persistent values come first and in the same order as in evaluation_schedule.
Schedule training_schedule(const StepDeclaration& step);

/// Forward passes of `num_micro_batches` micro-batches, loss sums gathered at the end.
Schedule evaluation_schedule(const StepDeclaration& step);

}  // namespace trireme::schedule
