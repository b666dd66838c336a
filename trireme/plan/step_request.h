// StepRequest: the options of a step, for one rank of a mesh; and the groups of ranks (process groups) that follow.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/mesh.h"
#include "trireme/model/unit.h"
#include "trireme/optim/optimizer.h"
#include "trireme/plan/settings.h"
#include "trireme/schedule/step_declaration.h"

namespace trireme::plan {

struct StepRequest {
  model::Precision precision = {};
  model::BatchShape shape = {};            ///< of one micro-batch
  bool trains = true;                      ///< false: only generation, with weights and nothing else
  model::GenerationShape generation = {};  ///< rows 0: none
  comm::ProcessMesh mesh = {{.shard = 1}, 1};
  int rank = 0;                            ///< global
  Strategy strategy = Strategy::no_shard;
  Reduce reduce = Reduce::ordered;
  Accumulation accumulation = Accumulation::sharded;
  bool sequence_parallel = false;
  model::Context context = model::Context::ring;
  model::DocumentRequest documents = {};   ///< whether blocks know the documents in a sequence
  int num_micro_batches = 1;               ///< of a data-parallel rank, in training
  int num_evaluation_micro_batches = 1;
  optim::OptimizerOptions optimizer = {.lr = 0, .step = 0};  ///< lr and step do not matter
  schedule::RecomputeSettings recompute = {};
  schedule::Prefetch prefetch = {};
  int reduce_lag = 1;
  bool steps_in_backward = false;          ///< StepDeclaration::steps_in_backward
  schedule::PipelineSettings pipeline = {};
  schedule::OffloadSettings offload = {};
  bool save_copy = false;                  ///< plan memory for a copy of the state that this rank saves
  int64_t guard_bytes = 0;                 ///< free bytes behind every transient value (debugging)
  int64_t lent_bytes = 0;  ///< of own memory, for what a caller keeps there between lists (Engine::lent_memory)

  /// A caller keeps a copy of what is trained beside the plan, and exchanges it with the weights between lists.
  bool keeps_reference = false;

  int coordinate(comm::Axis axis) const { return mesh.coordinate(rank, axis); }
  int size(comm::Axis axis) const { return mesh.size(axis); }
  /// This rank's place on the axes inside a unit (tp, cp), as build_model takes it.
  model::Parallel parallel() const;
  /// The number of ranks that divide the state (shard x cp; 1 for no_shard), and this rank's place among them.
  int num_shards() const;
  int shard_index() const;
  /// The number of copies of the state, and this rank's copy.
  int num_replicas() const;
  int replica_index() const;
  /// True when every data rank reduces all of each gradient.
  bool whole_gradients() const;
  /// The number n of ranks that load different data. Micro-batch i of the step is the (i / n)-th of data rank i % n.
  int num_data_ranks() const;
  int micro_batches(schedule::List list) const;
  bool wants(schedule::List list) const { return list == schedule::List::generate ? generation.rows > 0 : trains; }
  /// Of a micro-batch of the list, and what its units know of documents.
  model::BatchShape shape_of(schedule::List list) const {
    return list == schedule::List::generate ? model::BatchShape{1, generation.rows} : shape;
  }
  model::DocumentRequest documents_of(schedule::List list) const {
    return list == schedule::List::generate ? model::DocumentRequest{true, true} : documents;
  }
  int data_index() const;
  StepRequest of_rank(int other) const;
};

/// Errors    UsageError: combinations that cannot work, in one sentence
void check_request(const StepRequest& request);

/// Ranks that share a queue's collectives with this rank: global ranks in the order of their ranks in the group.
/// kind      gather, reduce, replicas, loss or norm; the others' groups depend on more than the request
/// Cost      O(members)
std::vector<int> members_of(const StepRequest& request, schedule::QueueKind kind);

/// This rank's process groups, by queue: global ranks in the order of their ranks in the group.
struct RankGroups {
  std::vector<int> gather;    ///< ranks that hold the parts of the weights
  std::vector<int> reduce;    ///< ranks whose gradients are added, in this order
  std::vector<int> replicas;  ///< ranks that hold the same shard in other copies
  std::vector<int> loss;      ///< ranks that have or need loss sums, of one tensor-parallel coordinate
  std::vector<int> stages;    ///< ranks of the pipeline
  comm::PerUnitAxis<std::vector<int>> inside;  ///< ranks that divide a unit
};
RankGroups rank_groups(const StepRequest& request);
int index_in(const std::vector<int>& group, int rank);

}  // namespace trireme::plan
