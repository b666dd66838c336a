#include "trireme/plan/step_plan.h"

#include <algorithm>
#include <numeric>
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
  std::vector<schedule::RankProgram> programs;
  std::vector<int> everyone(static_cast<size_t>(plan.request.mesh.world_size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  for (int rank = 0; rank < plan.request.mesh.world_size(); ++rank) {
    const RankGroups g = rank_groups(plan.request.of_rank(rank));
    const int stage = plan.request.mesh.coordinate(rank, Axis::pp);
    schedule::RankProgram p{.schedule = &lists[stage],
                            .members = {{schedule::QueueKind::gather, g.gather},
                                        {schedule::QueueKind::reduce, g.reduce},
                                        {schedule::QueueKind::replicas, g.replicas},
                                        {schedule::QueueKind::loss, g.loss},
                                        {schedule::QueueKind::norm, everyone}},
                            .stages = g.stages,
                            .inside = g.inside};
    // All tied groups have the same holders (plan_without_lists).
    for (int group = 0; group < static_cast<int>(plan.layouts.size()); ++group) {
      const std::vector<int>& holders = plan.holders(group);
      if (holders.size() < 2 || std::count(holders.begin(), holders.end(), stage) == 0) continue;
      std::vector<int>& members = p.members[schedule::QueueKind::tied];
      members.clear();
      for (int h : holders) members.push_back(g.stages[h]);
    }
    programs.push_back(std::move(p));
  }
  return programs;
}

}  // namespace trireme::plan
