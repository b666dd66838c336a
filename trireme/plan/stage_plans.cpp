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

std::vector<StepPlan> make_stage_plans(const model::Model& model, const StepRequest& request, PlacedStages placed) {
  const StepPlan first = plan_without_lists(model, request);
  const ListParts parts = list_parts(model, first);
  std::vector<StepPlan> plans(static_cast<size_t>(first.stages.ranks), first);
  std::vector<int64_t> least(plans.size());
  base::side_by_side(plans.size(), [&](size_t stage) {
    plans[stage].request.rank = first.groups.stages[stage];
    plans[stage].groups = rank_groups(plans[stage].request);
    add_lists(plans[stage], parts);
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
