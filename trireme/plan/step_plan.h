// StepPlan: all that is known about a step before anything is allocated: layouts, lists of actions, the arena. The
// engine executes exactly this. `trireme explain` prints it, for any rank of any mesh, on any machine.
#pragma once

#include <string>
#include <vector>

#include "trireme/model/model.h"
#include "trireme/optim/optimizer.h"
#include "trireme/plan/step_request.h"
#include "trireme/schedule/placement.h"
#include "trireme/schedule/queue_model.h"
#include "trireme/schedule/schedule.h"
#include "trireme/shard/flat_layout.h"

namespace trireme::plan {

/// In which dtypes and tensors a group is stored.
struct GroupStorage {
  bool trained = true;
  base::BlockFormat quantized = base::BlockFormat::none;  ///< then elements of layouts are bytes of records
  bool packed = false;  ///< likewise, of matrices in panel order
  at::ScalarType compute = at::kFloat;  ///< dtype in units
  at::ScalarType master = at::kFloat;   ///< dtype in the optimizer and in checkpoints
  at::ScalarType gradient = at::kFloat;  ///< dtype of the gradient that the optimizer reads
  optim::Rule rule = optim::Rule::adamw;          ///< of the optimizer; a run may have two
  std::vector<std::string> optimizer_state = {};  ///< names of its tensors, of the master's dtype
  bool compensated = false;  ///< a further tensor has what rounding the master has lost
  bool mixed() const { return compute != master; }
  /// Names of all tensors that a checkpoint keeps beside the master.
  std::vector<std::string> kept_names() const {
    std::vector<std::string> names = optimizer_state;
    if (compensated) names.emplace_back("compensation");
    return names;
  }
};

struct StepPlan {
  StepRequest request;
  RankGroups groups;
  std::vector<shard::FlatLayout> layouts;           ///< one per group of the model
  std::vector<GroupStorage> storage;                ///< one per group of the model
  std::vector<int> local_groups;                    ///< groups that this rank's pipeline stages read, ascending
  std::vector<int> tied_groups;  ///< of these, the trained ones that other pipeline ranks hold too
  schedule::StageMap stages;
  std::vector<int> first_unit;  ///< of each pipeline stage, then the number of units
  schedule::PerList<schedule::Schedule> lists;
  schedule::Arena arena;  ///< holds the values of all lists

  const schedule::Schedule& train() const { return lists[schedule::List::train]; }
  /// The list that the plan is about: training, or generation without training.
  const schedule::Schedule& main() const {
    return lists[request.trains ? schedule::List::train : schedule::List::generate];
  }
  /// What a unit keeps and needs in a list.
  model::UnitValues values_of(int unit, schedule::List list) const;
  /// Of a unit's keys and values, in generation.
  int64_t cache_bytes(int unit) const;
  /// Elements of group `g`. held: this rank has their optimizer state. reduced: the first reduction gives this rank
  /// their gradient. saved: this rank alone counts them in the gradient's norm and writes them to a checkpoint.
  shard::Range held(int g) const;
  shard::Range reduced(int g) const;
  shard::Range saved(int g) const;
  /// What the optimizer's step of group `g` updates on this rank: `held` cut into its parameters, and padding between.
  std::vector<optim::DecaySegment> segments(int g) const;
  /// Elements that a Step of group `g` updates at once, where its state leaves this memory: the copies of a large group
  /// would take too much of it. 0: all. tile: those of `held` that Step number `part` updates, counted from its begin.
  int64_t step_tile(int g) const;
  shard::Range tile(int g, int part) const;
  /// Bytes of the state of those parameters that has not their shapes (optim::whole_state).
  int64_t whole_state_bytes(int g) const;
  /// The calls that this step makes on the tensor-parallel axis.
  std::vector<model::TrafficRow> step_traffic(int g) const;
  /// Padded bytes of one tensor of group `g` in the copy for saving, and bytes of the copy of several groups. The copy
  /// holds master and optimizer state, group after group, and all state of other shapes that the rank holds.
  int64_t save_copy_bytes(int g) const;
  int64_t save_copy_bytes(const std::vector<int>& of_groups) const;
  /// Elements of each rank in the collectives of group `g`.
  std::vector<int64_t> gather_counts(int g) const;
  std::vector<int64_t> reduce_counts(int g) const;
  std::vector<int64_t> replica_counts(int g) const;
  /// Pipeline ranks whose stages read group `g`, ascending.
  const std::vector<int>& holders(int g) const { return holder_table[g]; }
  std::vector<std::vector<int>> holder_table;
  /// Sums that `unit` writes for each micro-batch: the loss, if it is the last unit, and its measures. On its rank they
  /// lie behind those of earlier units, from first_sum() of sums_of_rank() on.
  int64_t num_sums(int unit) const;
  int64_t first_sum(int unit) const;
  int64_t sums_of_rank(int stage_rank) const;
  int stage_rank_of(int unit) const;
  /// Where StepRequest::lent_bytes lie in own memory: where no persistent value is.
  int64_t lent_begin() const;
  const model::Model* model = nullptr;  ///< outlives the plan
};

/// Builds layouts and lists, places them and validates the lists of all ranks.
/// `model` is built with request.parallel() and outlives the plan.
/// Cost      no memory of the model's size; time grows with units x micro-batches x pipeline ranks
/// Errors    UsageError for combinations that cannot work; InternalError when the validator finds a broken rule
StepPlan make_step_plan(const model::Model& model, const StepRequest& request);
StepPlan make_step_plan(model::Model&&, const StepRequest&) = delete;  // it would end before the plan

/// All ranks of the mesh as programs for the queue model, indexed by global rank. `lists` is indexed by pipeline rank.
std::vector<schedule::RankProgram> rank_programs(const StepPlan& plan, const std::vector<schedule::Schedule>& lists);
/// The lists of all pipeline ranks, not placed.
std::vector<schedule::Schedule> stage_lists(const model::Model& model, const StepPlan& plan, schedule::List list);

/// One row of `explain memory`.
struct MemoryRow {
  std::string cause;
  int64_t bytes;
};

struct MemoryReport {
  std::vector<MemoryRow> rows;  ///< their sum is total_bytes
  std::vector<MemoryRow> phases;  ///< most bytes alive in each list of a run that also samples; else empty
  std::vector<MemoryRow> host, disk;  ///< what rests there, by cause; not in total_bytes
  int64_t total_bytes = 0;  ///< the arena: what the engine allocates
  int64_t private_bytes = 0;  ///< of these, the rank's own and symmetric memory
  int64_t host_shared_bytes = 0;  ///< of these, one copy for the ranks of a group on a host, if they share memory
  bool on_gpu = false;  ///< whose memory ranks do not share
  int64_t lower_bound_bytes = 0;  ///< of any placement: the largest sum of live values in each region
  std::string peak_action;  ///< of training, or of the list; the name of another phase, if that needs the most
};

MemoryReport memory_report(const StepPlan& plan);
std::string render_memory(const MemoryReport& report);
/// "; 12 MiB in host memory, 30 MiB on disk", or nothing.
std::string describe_tiers(const MemoryReport& report);
/// Bytes that a rank takes beside its arena for StepRequest::keeps_reference: a copy of what is trained in the dtype of
/// units, and its masters while the two are exchanged. 0: it keeps none.
int64_t reference_bytes(const StepPlan& plan);
/// What a rank's arena, and a reference beside it, add to the memory of its host, if `ranks` ranks from 0 on are on one
/// host. Of memory for a group this is the rank's part of the one copy; without `shared_memory`, or if the group has
/// ranks on other hosts, a copy.
int64_t bytes_on_host(const StepPlan& plan, int64_t ranks, bool shared_memory);
/// A table with a row per strategy: a rank's bytes of weights, gradients and optimizer state on this plan's shards, and
/// what the textbook formula gives.
std::string render_states(const StepPlan& plan);

}  // namespace trireme::plan
