#include "trireme/plan/step_plan.h"

#include <algorithm>
#include <utility>

#include "trireme/plan/declare_step.h"
#include "trireme/plan/step_layouts.h"
#include "trireme/plan/step_lists.h"

namespace trireme::plan {

using comm::Axis;
using schedule::List;

StepPlan make_step_plan(const model::Model& model, const StepRequest& request) {
  StepPlan plan = plan_without_lists(model, request);
  const ListParts parts = list_parts(model, plan);
  add_lists(plan, parts);
  place_lists(plan);
  check_lists(plan);
  if (request.mesh.world_size() == 1) return plan;
  for (const schedule::ListTraits& list : schedule::kLists)
    if (request.wants(list.list)) check_meetings(plan, list.name, lists_of_stages(model, plan, list.list, parts));
  return plan;
}

std::vector<schedule::Schedule> stage_lists(const model::Model& model, const StepPlan& plan, List list) {
  ListParts parts;
  parts.units[list] = declare_units(model, plan, list);
  parts.timing[list] = timing_of(plan, list);
  return lists_of_stages(model, plan, list, parts);
}

std::vector<schedule::RankProgram> rank_programs(const StepPlan& plan, const std::vector<schedule::Schedule>& lists) {
  using schedule::QueueKind;
  const comm::ProcessMesh& mesh = plan.request.mesh;
  std::vector<schedule::RankProgram> programs(static_cast<size_t>(mesh.world_size()));
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    schedule::RankProgram& p = programs[static_cast<size_t>(rank)];
    const int stage = mesh.coordinate(rank, Axis::pp);
    p.schedule = &lists[static_cast<size_t>(stage)];
    p.stages = mesh.group(rank, {Axis::pp});
    for (const comm::UnitAxisTraits& axis : comm::kUnitAxes) p.inside[axis.axis] = mesh.group(rank, {axis.mesh});
    // A group's first rank says who is in it.
    for (const QueueKind kind :
         {QueueKind::gather, QueueKind::reduce, QueueKind::replicas, QueueKind::loss, QueueKind::norm}) {
      if (p.members.contains(kind)) continue;
      const schedule::Members members(members_of(plan.request.of_rank(rank), kind));
      for (const int m : members) programs[static_cast<size_t>(m)].members[kind] = members;
    }
    // All tied groups have the same holders (plan_without_lists).
    for (int group = 0; group < static_cast<int>(plan.layouts.size()); ++group) {
      const std::vector<int>& holders = plan.holders(group);
      if (holders.size() < 2 || std::count(holders.begin(), holders.end(), stage) == 0) continue;
      std::vector<int> members;
      for (int h : holders) members.push_back(p.stages[static_cast<size_t>(h)]);
      p.members[QueueKind::tied] = std::move(members);
    }
  }
  return programs;
}

}  // namespace trireme::plan
