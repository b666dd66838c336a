#include "trireme/schedule/passes.h"

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

std::vector<int> local_groups(const StepDeclaration& step) {
  std::vector<int> groups;
  for (size_t u = 0; u < step.units.size(); ++u)
    if (is_local(step, static_cast<int>(u)))
      groups.insert(groups.end(), step.units[u].groups.begin(), step.units[u].groups.end());
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

PipelineTiming one_rank_timing(int micro_batches, bool train) {
  PipelineTiming t;
  t.cells.resize(1), t.start.resize(1), t.end.resize(1);
  double at = 0;
  const auto add = [&](Cell::Kind kind, int mb, double cost) {
    t.cells[0].push_back({kind, 0, mb});
    t.start[0].push_back(at);
    t.end[0].push_back(at += cost);
  };
  for (int mb = 0; mb < micro_batches; ++mb) {
    add(Cell::Kind::forward, mb, 1);
    if (train) add(Cell::Kind::backward, mb, 2);
  }
  return t;
}

namespace {

Schedule build(const StepDeclaration& step, const PipelineTiming& timing, bool train) {
  DraftList list = lay_down_units(step, timing.cells[step.pipeline_rank], train);
  if (train) insert_recomputation(list, step);
  insert_messages(list, step, timing);
  insert_unshards(list, step);
  if (train) insert_reductions(list, step);
  append_tail(list, step, train);
  return attach_values(list, step, train);
}

}  // namespace

Schedule training_schedule(const StepDeclaration& step, const PipelineTiming& timing) {
  return build(step, timing, true);
}
Schedule evaluation_schedule(const StepDeclaration& step, const PipelineTiming& timing) {
  return build(step, timing, false);
}

}  // namespace trireme::schedule
