// StepPlan: everything about a step that is known before anything is allocated - layouts, lists, the arena. The
// engine executes exactly this; `trireme explain` prints it, for any rank of any mesh, on any machine.
#pragma once

#include <string>
#include <vector>

#include "trireme/model/model.h"
#include "trireme/plan/step_request.h"
#include "trireme/schedule/passes.h"
#include "trireme/schedule/placement.h"
#include "trireme/schedule/queue_model.h"
#include "trireme/schedule/schedule.h"
#include "trireme/shard/flat_layout.h"

namespace trireme::plan {

struct StepPlan {
  StepRequest request;
  RankGroups groups;
  std::vector<shard::FlatLayout> layouts;           ///< one per group of the model
  std::vector<int> local_groups;                    ///< that this rank's pipeline stages read, ascending
  std::vector<int> tied_groups;                     ///< of them, those that other pipeline ranks hold too
  schedule::StageMap stages;
  std::vector<int> first_unit;                      ///< of each pipeline stage, and the number of units
  std::vector<schedule::Schedule> schedules;        ///< kTrain, kEvaluate
  schedule::Arena arena;
  static constexpr int kTrain = 0, kEvaluate = 1;

  const schedule::Schedule& train() const { return schedules[kTrain]; }
  /// The elements of group `g` whose optimizer state this rank holds; of them those that it reduces first (hybrid);
  /// of them those that it alone answers for: it counts them in the gradient's norm and writes them to a checkpoint.
  shard::Range held(int g) const;
  shard::Range reduced(int g) const;
  shard::Range saved(int g) const;
  /// Bytes of one tensor of `g` in the copy for saving, padded; and of the whole copy: master and optimizer state of
  /// each group, one after the other.
  int64_t save_copy_bytes(int g) const;
  int64_t save_copy_bytes(const std::vector<int>& of_groups) const;
  /// Counts of the collectives of group `g`.
  std::vector<int64_t> gather_counts(int g) const;
  std::vector<int64_t> reduce_counts(int g) const;
  std::vector<int64_t> replica_counts(int g) const;
  /// Pipeline ranks whose stages read group `g`, ascending.
  const std::vector<int>& holders(int g) const { return holder_table[g]; }
  std::vector<std::vector<int>> holder_table;
  bool holds_last_unit(int stage_rank) const;
  const model::Model* model = nullptr;  ///< outlives the plan
};

/// Builds layouts and lists, places them and validates the lists of all ranks.
/// `model` is built with request.parallel() and outlives the plan.
/// Cost      no memory of the model's size; time grows with units x micro-batches x pipeline ranks
/// Errors    UsageError for combinations that cannot work; InternalError when the validator finds a broken rule
StepPlan make_step_plan(const model::Model& model, const StepRequest& request);

/// All ranks of the mesh as programs for the queue model, index = global rank. `lists` are by pipeline rank.
std::vector<schedule::RankProgram> rank_programs(const StepPlan& plan, const std::vector<schedule::Schedule>& lists);
/// The lists of all pipeline ranks, not placed.
std::vector<schedule::Schedule> stage_lists(const model::Model& model, const StepPlan& plan, bool train);

/// One row of `explain memory`.
struct MemoryRow {
  std::string cause;
  int64_t bytes;
};

struct MemoryReport {
  std::vector<MemoryRow> rows;  ///< sum to total_bytes
  int64_t total_bytes = 0;  ///< the arena: what the engine allocates
  int64_t private_bytes = 0;  ///< of it this rank's own and symmetric
  int64_t host_shared_bytes = 0;  ///< of it once for the ranks of a host that meet, where they share memory
  int64_t lower_bound_bytes = 0;  ///< no placement can be smaller: largest sum of live values, per region
  std::string peak_action;
};

MemoryReport memory_report(const StepPlan& plan);
std::string render_memory(const MemoryReport& report);
/// What the arenas of the first `ranks` ranks take together on their host. Without `shared_memory`, or where a group
/// reaches beyond the host, each of its ranks has a copy of its own of what would be shared.
int64_t host_bytes(const StepPlan& plan, int64_t ranks, bool shared_memory);
/// Weights, gradients and optimizer state of every strategy on the plan's shards, beside the textbook's.
std::string render_states(const StepPlan& plan);

}  // namespace trireme::plan
