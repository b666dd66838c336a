// What a step is made from, as plain data: units, groups, and how they are divided. The passes read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/schedule/pipeline.h"

namespace trireme::schedule {

/// Bytes of one rank's sum of squares (optim::ExactSum), as it travels.
constexpr int64_t kNormSumBytes = 70 * 8;

struct TensorDeclaration {
  std::string label;
  int64_t bytes = 0;
};

struct UnitDeclaration {
  std::string name;
  std::vector<int> groups;                ///< that it reads
  int64_t output_bytes = 0;               ///< 0 for the last unit
  std::vector<TensorDeclaration> saved, forward_work, backward_work;
  // Where backward has two halves:
  std::vector<TensorDeclaration> deferred, input_work, weight_work;
  std::vector<int> saved_for_weight;      ///< which of `saved` the weight half reads
  std::vector<int> recomputed;            ///< which of `saved` are computed again before backward; empty: none
  bool reads_parameters_in_backward = true;
  bool reads_documents = false;           ///< where the step has any
  bool backward_includes_forward = false;
  bool splits_backward = false;
  bool talks_tp = false, talks_cp = false;  ///< meets its own groups inside
  double forward_cost = 1, input_cost = 1, weight_cost = 1, recompute_cost = 1;
};

struct GroupDeclaration {
  std::string name;
  int64_t numel = 0;                      ///< of the flat layout
  int64_t owned = 0;                      ///< of it, elements whose optimizer state this rank holds
  bool tied_over_stages = false;          ///< other pipeline ranks hold a replica
};

/// When a group's whole weights are put together.
enum class Gather {
  never,     ///< every rank keeps all of them up to date (no_shard)
  once,      ///< once a step, into memory that stays (ZeRO-1, ZeRO-2)
  each_use,  ///< before each use, into memory that is given back after it (ZeRO-3)
};

/// How ranks divide weights, gradients and optimizer state: the whole difference between the strategies.
struct Sharding {
  Gather gather = Gather::never;
  bool whole_gradients = true;   ///< every rank reduces all of each gradient (no_shard, ZeRO-1)
  bool replicas = false;         ///< the shard's gradient is reduced over replicas too (hybrid)
  bool ordered = true;           ///< sums over micro-batches in the order of one rank
  bool local = false;            ///< keep gradients of all micro-batches on the rank, reduce once a step
  bool several_ranks = false;    ///< there is somebody to reduce with
};

struct Prefetch {
  enum class Backward { pre, post, none };
  int depth = 1;                          ///< compute actions between the start of an Unshard and its reader
  bool forward = true;                    ///< otherwise depth 0 for forward passes
  Backward backward = Backward::pre;      ///< post: after the computation before, none: depth 0
  int64_t limit = 0;                      ///< elements unsharded at once beyond the one in use; 0: no limit
};

struct StepDeclaration {
  std::vector<UnitDeclaration> units;     ///< of the whole model
  std::vector<GroupDeclaration> groups;   ///< of the whole model
  Sharding sharding;
  int num_micro_batches = 1;              ///< of this rank and step
  int64_t input_bytes = 0, target_bytes = 0;   ///< of one micro-batch
  int64_t document_bytes = 0;             ///< likewise, on every stage; 0: documents are not kept apart
  int64_t compute_bytes = 4, state_bytes = 4;  ///< of one element
  std::vector<std::string> optimizer_state = {"exp_avg", "exp_avg_sq"};  ///< tensors an optimizer keeps of a group
  Prefetch prefetch;
  int reduce_lag = 1;                     ///< compute actions that a gradient's reduction may overlap
  int64_t norm_blocks = 0;                ///< partial sums of squares, of this rank's largest group
  int64_t norm_ranks = 1;                 ///< ranks whose sums make the norm
  int64_t all_losses = 0;                 ///< loss sums of all ranks
  int64_t save_copy_bytes = 0;            ///< for saves beside training; 0: none
  // The pipeline; one stage: none.
  StageMap stages;
  int pipeline_rank = 0;
  std::vector<int> first_unit = {};       ///< of each stage, and the number of units; empty: one stage
};

/// Stage that holds `unit`, and the stages' ends.
int stage_of_unit(const StepDeclaration& step, int unit);
/// True when this rank runs `unit`.
bool is_local(const StepDeclaration& step, int unit);
/// Groups that this rank's units read, ascending.
std::vector<int> local_groups(const StepDeclaration& step);

}  // namespace trireme::schedule
