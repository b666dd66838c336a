#include "trireme/plan/stage_plans.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trireme/base/side_by_side.h"
#include "trireme/plan/step_layouts.h"
#include "trireme/plan/step_lists.h"
#include "trireme/schedule/placement.h"

namespace trireme::plan {
namespace {

// No placement of the lists is smaller.
int64_t least_bytes(const StepPlan& plan) {
  std::array<int64_t, schedule::kNumMemories> most{};
  for (const schedule::Schedule& s : plan.lists)
    for (const auto& live : schedule::live_bytes(s))
      for (size_t m = 0; m < most.size(); ++m) most[m] = std::max(most[m], live[m]);
  return schedule::own_bytes(most);
}

}  // namespace

int fullest_alike(const StepPlan& plan) {
  const comm::ProcessMesh& mesh = plan.request.mesh;
  int fullest = plan.request.rank;
  int64_t most = -1;
  for (const int rank : mesh.group(plan.request.rank, {comm::Axis::replicate, comm::Axis::shard, comm::Axis::cp})) {
    const StepRequest r = plan.request.of_rank(rank);
    const int part = r.shard_index() * r.num_replicas() + r.replica_index(), parts = r.num_shards() * r.num_replicas();
    int64_t owned = 0;
    for (const int g : plan.local_groups)
      owned += plan.layouts[static_cast<size_t>(g)].owned(r.shard_index(), r.num_shards()).size() +
               plan.layouts[static_cast<size_t>(g)].owned(part, parts).size();
    if (owned > most) most = owned, fullest = rank;
  }
  return fullest;
}

std::vector<StepPlan> make_stage_plans(const model::Model& model, const StepRequest& request, PlacedStages placed) {
  const StepPlan first = plan_without_lists(model, request);
  const ListParts parts = list_parts(model, first);
  std::vector<StepPlan> plans(static_cast<size_t>(first.stages.ranks), first);
  std::vector<int64_t> least(plans.size());
  const auto take_rank = [&](StepPlan& plan, int rank) {
    plan = first;
    plan.request.rank = rank;
    plan.groups = rank_groups(plan.request);
    add_lists(plan, parts);
  };
  base::side_by_side(plans.size(), [&](size_t stage) {
    take_rank(plans[stage], first.groups.stages[stage]);
    if (optim::is_by_tensor(request.optimizer.rule))
      if (const int fullest = fullest_alike(plans[stage]); fullest != plans[stage].request.rank)
        take_rank(plans[stage], fullest);
    least[stage] = least_bytes(plans[stage]);
  });
  // A quick placement is no smaller than the one that a run has: below what one stage needs, it is not the largest.
  const auto candidate = static_cast<size_t>(std::ranges::max_element(least) - least.begin());
  const auto is_placed = [&](size_t stage) { return placed == PlacedStages::all || stage == candidate; };
  base::side_by_side(plans.size(), [&](size_t i) {
    const size_t stage = (candidate + i) % plans.size();  // what takes longest begins first
    if (is_placed(stage)) return place_lists(plans[stage]);
    plans[stage].arena = schedule::place_quickly(plans[stage].lists.values, request.guard_bytes);
    lend_memory(plans[stage]);
  });
  const int64_t most = plans[candidate].arena.total();
  base::side_by_side(plans.size(), [&](size_t stage) {
    if (!is_placed(stage) && plans[stage].arena.total() >= most) place_lists(plans[stage]);
    check_lists(plans[stage]);
  });
  if (request.mesh.world_size() == 1) return plans;
  for (const schedule::ListTraits& list : schedule::kLists) {
    if (!request.wants(list.list)) continue;
    std::vector<schedule::Schedule> lists;
    for (StepPlan& plan : plans) lists.push_back(std::move(plan.lists[list.list]));
    check_meetings(first, list.name, lists);
    for (size_t stage = 0; stage < plans.size(); ++stage) plans[stage].lists[list.list] = std::move(lists[stage]);
  }
  return plans;
}

}  // namespace trireme::plan
