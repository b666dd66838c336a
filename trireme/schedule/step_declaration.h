// StepDeclaration: the units and groups of a step, and how ranks divide them, as plain data. The passes (draft.h) build
// a list from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/unit_axes.h"
#include "trireme/schedule/pipeline.h"
#include "trireme/schedule/schedule.h"
#include "trireme/schedule/settings.h"

namespace trireme::schedule {

/// Bytes of one rank's sum of squares (optim::ExactSum), as it travels.
constexpr int64_t kNormSumBytes = 70 * 8;

/// A tensor of a unit; an empty label means no tensor.
struct TensorDeclaration {
  std::string label;
  int64_t bytes = 0;
};

struct UnitDeclaration {
  std::string name;
  std::vector<int> groups;  ///< whose parameters it reads
  std::vector<int> forward_groups = {};  ///< of these, the ones that backward does not read
  int64_t output_bytes = 0;  ///< 0 for the last unit, except in generation
  int64_t cache_bytes = 0;  ///< of generation
  std::vector<TensorDeclaration> saved, forward_work, backward_work;
  // If backward has two halves:
  std::vector<TensorDeclaration> deferred, input_work, weight_work;
  std::vector<int> saved_for_weight;  ///< which of `saved` the weight half reads
  std::vector<int> recomputed;  ///< which of `saved` are computed again before backward; empty: none
  bool reads_documents = false;  ///< if the step knows documents
  bool reads_targets = false;  ///< beside the last unit
  int num_measures = 0;  ///< sums that forward writes beside the loss
  bool backward_includes_forward = false;  ///< training runs no forward for it (the head)
  bool splits_backward = false;
  comm::PerUnitAxis<bool> meets = {};  ///< whether its passes communicate on the axis
  comm::PerUnitAxis<bool> meets_in_weight_half = {};  ///< whether the weight half does
  double forward_cost = 1, input_cost = 1, weight_cost = 1, recompute_cost = 1;

  /// The groups that a computation of this kind reads.
  std::vector<int> groups_read_by(ActionKind kind) const;
};

struct GroupDeclaration {
  std::string name;
  int64_t numel = 0;  ///< of the flat layout
  int64_t owned = 0;  ///< of these, elements whose master weights this rank holds
  bool tied_over_stages = false;  ///< other pipeline ranks hold the group too
  bool trained = true;  ///< false: frozen, has only weights
  int64_t compute_bytes = 4, state_bytes = 4;  ///< of an element: in units, and of its master
  int64_t slot_bytes = 4, gradient_bytes = 4;  ///< of an element's gradient: of one micro-batch, and summed
  std::vector<std::string> optimizer_state = {"exp_avg", "exp_avg_sq"};  ///< the optimizer's tensors
  bool compensated = false;  ///< what rounding the weights has lost is kept beside them
  bool leaves = true;  ///< where kinds of values are offloaded, this group's are
  int64_t whole_state_bytes = 0;  ///< state of other shapes than the parameters', instead of optimizer_state
  int64_t step_tile = 0;  ///< elements that the optimizer updates at once; 0: all that this rank owns
  int64_t step_work_bytes = 0;  ///< scratch of the optimizer's step
  comm::PerUnitAxis<bool> meets_in_step = {};  ///< whether the optimizer's step communicates on the axis
  bool mixed() const { return compute_bytes != state_bytes; }
  int step_tiles() const { return step_tile > 0 ? static_cast<int>((owned + step_tile - 1) / step_tile) : 1; }
  /// Elements of a tile.
  int64_t tile_size(int tile) const { return step_tile > 0 ? std::min(step_tile, owned - tile * step_tile) : owned; }
};

/// When a group's whole weights are gathered.
enum class Gather {
  never,  ///< every rank keeps and updates whole weights (no_shard)
  once,  ///< once a step, into memory that stays (ZeRO-1, ZeRO-2)
  each_use,  ///< before each use, into memory that is free after the use (ZeRO-3)
};

/// How ranks divide weights, gradients and optimizer state. This is the only difference between strategies.
struct Sharding {
  Gather gather = Gather::never;
  bool whole_gradients = true;  ///< every rank reduces all of each gradient (no_shard, ZeRO-1)
  bool replicas = false;  ///< the shard's gradient is reduced over replicas too (hybrid)
  bool ordered = true;  ///< adds micro-batches in the order in which one rank would
  bool local = false;  ///< a rank sums its micro-batches' gradients and reduces them once a step
  bool several_ranks = false;  ///< gradients are reduced over more than one rank
};

/// How early Unshards (all-gathers of weights) start.
struct Prefetch {
  int depth = 1;  ///< compute actions between the start of an Unshard and its reader
  bool forward = true;  ///< false: depth 0 in forward passes
  PrefetchBackward backward = PrefetchBackward::pre;  ///< post: before the last unit's reduction; none: depth 0
  int64_t limit = 0;  ///< elements unsharded at once beyond the group in use; 0: no limit
};

/// What schedule.prefetch* and schedule.limit_unsharded ask for.
Prefetch prefetch_of(const ScheduleSettings& settings);

struct StepDeclaration {
  bool is_wanted = true;  ///< false: the list has no actions
  std::vector<UnitDeclaration> units;  ///< of the whole model
  std::vector<GroupDeclaration> groups;  ///< of the whole model
  Sharding sharding;
  int num_micro_batches = 1;  ///< of this rank and step
  int64_t input_bytes = 0, target_bytes = 0;  ///< of one micro-batch
  int64_t document_bytes = 0;  ///< of one micro-batch, on every stage; 0: units do not know documents
  Prefetch prefetch;
  int reduce_lag = 1;  ///< compute actions that a gradient's reduction may overlap
  bool steps_in_backward = false;  ///< a group's Step follows as soon as its gradient is complete; nothing is clipped
  int64_t norm_blocks = 0;  ///< number of partial sums of squares of this rank's largest group
  int64_t norm_ranks = 1;  ///< number of ranks whose sums make the norm
  int64_t all_losses = 0;  ///< number of loss sums of all ranks, with their units' measures
  OffloadSettings offload;
  int64_t save_copy_bytes = 0;  ///< for saves in the background; 0: none
  // The pipeline.
  StageMap stages;
  int pipeline_rank = 0;
  std::vector<int> first_unit = {};  ///< of each stage, then the number of units; empty: one stage
};

/// The stage that holds `unit`.
int stage_of_unit(const StepDeclaration& step, int unit);
/// True when this rank runs `unit`.
bool is_local(const StepDeclaration& step, int unit);
/// Whether `unit` is the last one, which writes the loss, or reads targets or writes measures as it does.
bool reads_targets(const StepDeclaration& step, int unit);
/// Sums that the units of a pipeline stage's rank write for each micro-batch: measures in the order of units, and the
/// loss of the last unit.
int64_t sums_of_rank(const StepDeclaration& step, int pipeline_rank);
/// local_groups: the groups that this rank's units read, ascending. trained_groups: those of `groups` that are trained.
std::vector<int> local_groups(const StepDeclaration& step);
std::vector<int> trained_groups(const StepDeclaration& step, std::vector<int> groups);

/// Makes a list: lays out the pipeline's cells, then runs the passes of draft.h one after the other. The list is one
/// optimizer step, or an evaluation: forward passes, then a gather of the loss sums. Persistent values come first, in
/// the same order in every list. `timing` holds the cells of all pipeline ranks (time_pipeline; without a pipeline:
/// those of 1f1b on one rank).
Schedule make_list(List list, const StepDeclaration& step, const PipelineTiming& timing);

}  // namespace trireme::schedule
