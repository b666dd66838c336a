#include "trireme/plan/step_lists.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/plan/declare_step.h"
#include "trireme/schedule/validate.h"

namespace trireme::plan {

using schedule::List;

namespace {

// The lists share their persistent values, so loss slots are sized for the longest list.
void equalize_persistent(schedule::PerList<schedule::Schedule>& lists) {
  const std::vector<schedule::Value>& first = lists.begin()->values;
  for (size_t v = 0; v < first.size() && first[v].persistent; ++v) {
    int64_t bytes = 0;
    for (const schedule::Schedule& s : lists) bytes = std::max(bytes, s.values[v].bytes);
    for (schedule::Schedule& s : lists) s.values[v].bytes = bytes;
  }
}

void require_none(const std::string& name, const std::vector<std::string>& problems) {
  if (!problems.empty())
    throw InternalError(fmt::format("the {} schedule is wrong: {}{}", name, problems[0],
                                    problems.size() > 1 ? fmt::format(" (and {} more)", problems.size() - 1) : ""));
}

}  // namespace

ListParts list_parts(const model::Model& model, const StepPlan& plan) {
  ListParts parts;
  for (const schedule::ListTraits& list : schedule::kLists) {
    parts.units[list.list] = declare_units(model, plan, list.list);
    parts.timing[list.list] = timing_of(plan, list.list);
  }
  return parts;
}

void add_lists(StepPlan& plan, const ListParts& parts) {
  for (const schedule::ListTraits& list : schedule::kLists) {
    const schedule::StepDeclaration d = declare_step(*plan.model, plan, list.list, parts.units[list.list]);
    plan.lists[list.list] = schedule::make_list(list.list, d, parts.timing[list.list]);
    plan.local_groups = schedule::local_groups(d);
  }
  for (int g : plan.local_groups)
    if (plan.storage[g].trained && plan.holders(g).size() > 1) plan.tied_groups.push_back(g);
  equalize_persistent(plan.lists);
}

void lend_memory(StepPlan& plan) {
  if (plan.request.lent_bytes == 0) return;
  int64_t& own = plan.arena.bytes[static_cast<size_t>(schedule::Memory::own)];
  own = std::max(own, plan.lent_begin() + schedule::aligned(plan.request.lent_bytes));
}

void place_lists(StepPlan& plan) {
  plan.arena = schedule::place(plan.lists.values, plan.request.guard_bytes);
  lend_memory(plan);
}

void check_lists(const StepPlan& plan) {
  for (const schedule::Schedule& s : plan.lists) require_none(s.name, schedule::validate_list(s, plan.arena));
}

std::vector<schedule::Schedule> lists_of_stages(const model::Model& model, const StepPlan& plan, List list,
                                                const ListParts& parts) {
  schedule::StepDeclaration d = declare_step(model, plan, list, parts.units[list]);
  std::vector<schedule::Schedule> lists;
  for (int rank = 0; rank < plan.stages.ranks; ++rank) {
    d.pipeline_rank = rank;
    lists.push_back(schedule::make_list(list, d, parts.timing[list]));
  }
  return lists;
}

void check_meetings(const StepPlan& plan, const char* name, const std::vector<schedule::Schedule>& lists) {
  require_none(name, schedule::validate_meetings(rank_programs(plan, lists)));
}

}  // namespace trireme::plan
