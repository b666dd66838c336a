#include "trireme/plan/step_request.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::plan {

using comm::Axis;

model::Parallel StepRequest::parallel() const {
  return {.tp_rank = coordinate(Axis::tp),
          .tp_size = size(Axis::tp),
          .sequence_parallel = sequence_parallel,
          .cp_rank = coordinate(Axis::cp),
          .cp_size = size(Axis::cp),
          .context = context};
}

int StepRequest::num_shards() const { return strategy == Strategy::no_shard ? 1 : size(Axis::shard) * size(Axis::cp); }

int StepRequest::shard_index() const {
  return strategy == Strategy::no_shard ? 0 : coordinate(Axis::shard) * size(Axis::cp) + coordinate(Axis::cp);
}

int StepRequest::num_replicas() const {
  const int all = size(Axis::replicate) * size(Axis::shard) * size(Axis::cp);
  return all / num_shards();
}

int StepRequest::replica_index() const {
  if (strategy != Strategy::no_shard) return coordinate(Axis::replicate);
  return (coordinate(Axis::shard) * size(Axis::cp) + coordinate(Axis::cp)) * size(Axis::replicate) +
         coordinate(Axis::replicate);
}

bool StepRequest::whole_gradients() const {
  return strategy == Strategy::no_shard || strategy == Strategy::zero1 || num_shards() == 1;
}

int StepRequest::num_data_ranks() const { return size(Axis::replicate) * size(Axis::shard); }

// Shards outside, replicas inside: the order in which direct exchange folds gradients (rank_groups().reduce).
int StepRequest::data_index() const {
  return coordinate(Axis::shard) * size(Axis::replicate) + coordinate(Axis::replicate);
}

int StepRequest::micro_batches(schedule::List list) const {
  if (list == schedule::List::generate) return 1;
  return list == schedule::List::train ? num_micro_batches : num_evaluation_micro_batches;
}

StepRequest StepRequest::of_rank(int other) const {
  StepRequest r = *this;
  r.rank = other;
  return r;
}

// The optimizer and the sums of gradients know state in float32 or float64, and sums that widen two bytes to float32.
static void check_dtypes(const model::Precision& p) {
  const bool narrow = p.compute == at::kBFloat16 || p.compute == at::kHalf;
  const at::ScalarType state = narrow ? at::kFloat : p.compute;
  if (p.compute != at::kFloat && p.compute != at::kDouble && !narrow)
    throw UsageError(
        fmt::format("precision: units do not compute in {}; set Precision::compute to Float, Double, BFloat16 or Half",
                    c10::toString(p.compute)));
  if (p.state != state)
    throw UsageError(fmt::format("precision: gradients in {} cannot be summed in {}; set Precision::state to {}",
                                 c10::toString(p.compute), c10::toString(p.state), c10::toString(state)));
}

void check_request(const StepRequest& r) {
  const auto refuse = [](const std::optional<config::Refusal>& why) {
    if (why) throw UsageError(fmt::format("{}; {}", why->headline, why->hint));
  };
  if (r.trains) check_dtypes(r.precision);
  refuse(check_accumulation(r.accumulation, r.reduce));
  const int bytes = r.precision.narrow_weights || r.precision.narrow_gradients ? 2
                    : r.precision.master() == at::kDouble                      ? 8
                                                                               : 4;
  refuse(optim::check_storage(r.optimizer.rule, bytes));
  refuse(check_gradient_dtypes(r.precision.narrow_gradients, r.precision.wide_slots, r.accumulation));
  refuse(check_offload(r.strategy, r.num_shards(), int64_t{r.num_shards()} * r.num_replicas(), r.offload));
  if (r.sequence_parallel) refuse(check_sequence_parallel(r.shape.tokens() / r.size(Axis::cp), r.size(Axis::tp)));
  if (r.documents.attention && r.size(Axis::cp) > 1 && r.context == model::Context::ring)
    throw UsageError(
        "data.reset_attention_mask keeps attention inside documents, which ring attention cannot; use "
        "--mesh.context ulysses");
}

int index_in(const std::vector<int>& group, int rank) {
  return static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
}

std::vector<int> members_of(const StepRequest& r, schedule::QueueKind kind) {
  using schedule::QueueKind;
  const comm::ProcessMesh& mesh = r.mesh;
  const bool sharded = r.strategy != Strategy::no_shard;
  switch (kind) {
    case QueueKind::gather:
      return sharded ? mesh.group(r.rank, {Axis::shard, Axis::cp}) : std::vector{r.rank};
    case QueueKind::replicas:
      return sharded ? mesh.group(r.rank, {Axis::replicate}) : std::vector{r.rank};
    case QueueKind::reduce: {
      if (r.reduce != Reduce::ordered && !r.whole_gradients()) return members_of(r, QueueKind::gather);
      // All data ranks, shards outside and replicas inside: so slices nest in the shards, and gradients are summed in
      // the order of the micro-batches.
      std::vector<int> members;
      for (const int shard : mesh.group(r.rank, {Axis::shard, Axis::cp}))
        for (const int replica : mesh.group(shard, {Axis::replicate})) members.push_back(replica);
      return members;
    }
    case QueueKind::loss:
      return mesh.group(r.rank, {Axis::pp, Axis::replicate, Axis::shard, Axis::cp});
    case QueueKind::norm:
      return mesh.group(r.rank, {Axis::pp, Axis::replicate, Axis::shard, Axis::cp, Axis::tp});
    default:
      break;
  }
  throw Error("members_of: a queue whose ranks the request does not know");
}

RankGroups rank_groups(const StepRequest& r) {
  using schedule::QueueKind;
  RankGroups g{.gather = members_of(r, QueueKind::gather),
               .reduce = members_of(r, QueueKind::reduce),
               .replicas = members_of(r, QueueKind::replicas),
               .loss = members_of(r, QueueKind::loss),
               .stages = r.mesh.group(r.rank, {Axis::pp}),
               .inside = {}};
  for (const comm::UnitAxisTraits& axis : comm::kUnitAxes) g.inside[axis.axis] = r.mesh.group(r.rank, {axis.mesh});
  return g;
}

}  // namespace trireme::plan
