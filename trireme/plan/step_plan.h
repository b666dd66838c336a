// StepPlan: everything about a step that is known before anything is allocated - layouts, lists, the arena. The
// engine executes exactly this; `trireme explain` prints it, for any number of ranks, on any machine.
#pragma once

#include <string>
#include <vector>

#include "trireme/model/model.h"
#include "trireme/schedule/passes.h"
#include "trireme/schedule/placement.h"
#include "trireme/schedule/schedule.h"
#include "trireme/shard/flat_layout.h"

namespace trireme::plan {

struct StepRequest {
  model::Precision precision;
  model::BatchShape shape;                 ///< of one micro-batch
  int rank = 0, num_ranks = 1;             ///< in the group that shares the data
  bool shard = false;                      ///< full_shard; otherwise no_shard
  int num_micro_batches = 1;               ///< of this rank, training
  int num_evaluation_micro_batches = 1;
  schedule::Recompute recompute = schedule::Recompute::none;
  int prefetch = 1, reduce_lag = 1;
  int64_t guard_bytes = 0;                 ///< behind every transient value (debugging)
};

struct StepPlan {
  StepRequest request;
  std::vector<shard::FlatLayout> layouts;           ///< one per group
  std::vector<schedule::Schedule> schedules;        ///< kTrain, kEvaluate
  schedule::Arena arena;
  static constexpr int kTrain = 0, kEvaluate = 1;

  const schedule::Schedule& train() const { return schedules[kTrain]; }
  /// True when each rank owns only a part of every group.
  bool sharded() const { return request.shard && request.num_ranks > 1; }
  /// The elements of group `g` whose master weights this rank holds.
  shard::Range held(int g) const {
    return sharded() ? layouts[g].owned(request.rank, request.num_ranks) : shard::Range{0, layouts[g].numel()};
  }
};

/// Builds layouts and lists, places them and validates the lists of all ranks.
/// Cost      no memory of the model's size; time grows with units x micro-batches
/// Errors    InternalError when the validator finds a broken rule
StepPlan make_step_plan(const model::Model& model, const StepRequest& request);

/// One row of `explain memory`.
struct MemoryRow {
  std::string cause;
  int64_t bytes;
};

struct MemoryReport {
  std::vector<MemoryRow> rows;      ///< sum to total_bytes
  int64_t total_bytes = 0;          ///< the arena: what the engine allocates
  int64_t private_bytes = 0;        ///< of it this rank's own and symmetric
  int64_t host_shared_bytes = 0;    ///< of it once per host
  int64_t lower_bound_bytes = 0;    ///< no placement can be smaller: largest sum of live values, per region
  std::string peak_action;
};

MemoryReport memory_report(const StepPlan& plan);
std::string render_memory(const MemoryReport& report);

}  // namespace trireme::plan
