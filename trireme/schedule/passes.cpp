#include "trireme/schedule/step_declaration.h"

#include <algorithm>

#include "trireme/schedule/draft.h"

namespace trireme::schedule {

int stage_of_unit(const StepDeclaration& step, int unit) {
  if (step.first_unit.empty()) return 0;
  const auto after = std::upper_bound(step.first_unit.begin(), step.first_unit.end(), unit);
  return static_cast<int>(after - step.first_unit.begin()) - 1;
}

bool is_local(const StepDeclaration& step, int unit) {
  return step.stages.rank_of(stage_of_unit(step, unit)) == step.pipeline_rank;
}

bool reads_targets(const StepDeclaration& step, int unit) {
  return unit + 1 == static_cast<int>(step.units.size()) || step.units[unit].reads_targets;
}

int64_t sums_of_rank(const StepDeclaration& step, int pipeline_rank) {
  int64_t sums = 0;
  for (int u = 0; u < static_cast<int>(step.units.size()); ++u)
    if (step.stages.rank_of(stage_of_unit(step, u)) == pipeline_rank)
      sums += step.units[u].num_measures + (u + 1 == static_cast<int>(step.units.size()) ? 1 : 0);
  return sums;
}

std::vector<int> UnitDeclaration::groups_read_by(ActionKind kind) const {
  if (kind == ActionKind::backward_weight) return {};
  std::vector<int> read = groups;
  if (kind == ActionKind::backward || kind == ActionKind::backward_input)
    std::erase_if(read, [&](int g) { return std::ranges::find(forward_groups, g) != forward_groups.end(); });
  return read;
}

std::vector<int> local_groups(const StepDeclaration& step) {
  std::vector<int> groups;
  for (size_t u = 0; u < step.units.size(); ++u)
    if (is_local(step, static_cast<int>(u)))
      groups.insert(groups.end(), step.units[u].groups.begin(), step.units[u].groups.end());
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

std::vector<int> trained_groups(const StepDeclaration& step, std::vector<int> groups) {
  std::erase_if(groups, [&](int g) { return !step.groups[g].trained; });
  return groups;
}

Schedule make_list(List which, const StepDeclaration& step, const PipelineTiming& timing) {
  const auto& [self, name, train, has_loss] = traits_of(which);
  Schedule schedule;
  if (!step.is_wanted) {
    schedule = attach_values({}, step, has_loss);
    schedule.name = name;
    return schedule;
  }
  DraftList list = lay_down_units(step, timing.cells[step.pipeline_rank], train);
  if (train) insert_recomputation(list, step);
  insert_messages(list, step, timing);
  insert_unshards(list, step);
  if (train) insert_reductions(list, step);
  if (has_loss) append_tail(list, step, train);
  if (train) insert_early_steps(list, step);
  schedule = attach_values(list, step, has_loss);
  schedule.name = name;
  return schedule;
}

}  // namespace trireme::schedule
