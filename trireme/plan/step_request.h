// StepRequest: what a step is asked to be, on which rank of which mesh; and the groups of ranks that follow.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/mesh.h"
#include "trireme/model/unit.h"
#include "trireme/schedule/step_declaration.h"

namespace trireme::plan {

/// What data-parallel ranks divide. Hybrid strategies are the last two on a mesh with replicas.
enum class Strategy {
  no_shard,       ///< nothing (DDP)
  zero1,          ///< optimizer state
  shard_grad_op,  ///< and gradients (ZeRO-2)
  full_shard,     ///< and weights (ZeRO-3)
};

struct RecomputeRequest {
  enum class Mode { none, full, selective };
  Mode mode = Mode::none;
  std::vector<std::string> values = {"hidden"};  ///< selective: names of saved values
  int every = 1;                                 ///< of the units that save anything, every n-th
};

struct PipelineRequest {
  std::string schedule = "1f1b";
  int chunks = 0;                ///< stages a rank; 0: the schedule's own number
  std::vector<int> split = {};   ///< units of each stage; empty: balanced by cost
};

struct StepRequest {
  model::Precision precision = {};
  model::BatchShape shape = {};            ///< of one micro-batch
  comm::ProcessMesh mesh = {{.shard = 1}, 1};
  int rank = 0;                            ///< global
  Strategy strategy = Strategy::no_shard;
  bool ordered = true;                     ///< sums in the order of one rank
  bool local_accumulation = false;
  bool sequence_parallel = false;
  model::Parallel::Context context = model::Parallel::Context::ring;
  model::DocumentRequest documents = {};   ///< what blocks are told of the documents in a sequence
  int num_micro_batches = 1;               ///< of a data-parallel rank, training
  int num_evaluation_micro_batches = 1;
  std::vector<std::string> optimizer_state = {"exp_avg", "exp_avg_sq"};  ///< optim::state_names
  RecomputeRequest recompute = {};
  schedule::Prefetch prefetch = {};
  int reduce_lag = 1;
  PipelineRequest pipeline = {};
  bool save_copy = false;                  ///< plans memory for a copy of the state that this rank saves
  int64_t guard_bytes = 0;                 ///< behind every transient value (debugging)

  int coordinate(comm::Axis axis) const { return mesh.coordinate(rank, axis); }
  int size(comm::Axis axis) const { return mesh.size(axis); }
  /// This rank's place on the axes inside a unit: what build_model wants.
  model::Parallel parallel() const;
  /// Ranks that divide the state (shard x cp, none for no_shard), and this one's place among them.
  int num_shards() const;
  int shard_index() const;
  /// Copies of the state.
  int num_replicas() const;
  int replica_index() const;
  /// True when every data rank reduces all of each gradient.
  bool whole_gradients() const;
  /// Ranks that load different data: micro-batch i of the step is the (i / n)-th of rank i % n.
  int num_data_ranks() const;
  int data_index() const;
  StepRequest of_rank(int other) const;
};

/// Errors    UsageError: combinations that cannot work, in one sentence
void check_request(const StepRequest& request);

/// Global ranks that meet in each queue, in the order of their group ranks.
struct RankGroups {
  std::vector<int> gather;    ///< parts of the weights come from
  std::vector<int> reduce;    ///< gradients are folded over, in this order
  std::vector<int> replicas;  ///< the same shard in other copies
  std::vector<int> loss;      ///< have loss sums, or want them: this rank's tensor-parallel coordinate
  std::vector<int> stages;    ///< of the pipeline
  std::vector<int> tp, cp;
};
RankGroups rank_groups(const StepRequest& request);
int index_in(const std::vector<int>& group, int rank);

}  // namespace trireme::plan
