// Computation: every cell becomes the units of its stage, in order; backward passes in reverse.
#include <utility>

#include "trireme/schedule/draft.h"

namespace trireme::schedule {
namespace {

// What a unit does in a cell, if anything. A unit without backward halves runs its whole backward in the input half.
bool action_in(Cell::Kind cell, const UnitDeclaration& unit, bool train, ActionKind& kind) {
  switch (cell) {
    case Cell::Kind::forward:
      kind = ActionKind::forward;
      return !train || !unit.backward_includes_forward;
    case Cell::Kind::backward:
      kind = ActionKind::backward;
      return true;
    case Cell::Kind::input:
      kind = unit.splits_backward ? ActionKind::backward_input : ActionKind::backward;
      return true;
    case Cell::Kind::weight:
      kind = ActionKind::backward_weight;
      return unit.splits_backward;
  }
  return false;
}

}  // namespace

DraftList lay_down_units(const StepDeclaration& step, const std::vector<Cell>& cells, bool train) {
  DraftList list;
  const auto num_units = static_cast<int>(step.units.size());
  std::vector<char> loaded(step.num_micro_batches, 0);
  for (int c = 0; c < static_cast<int>(cells.size()); ++c) {
    const Cell& cell = cells[c];
    const int stage = step.stages.stage(step.pipeline_rank, cell.chunk);
    const int begin = step.first_unit.empty() ? 0 : step.first_unit[stage];
    const int end = step.first_unit.empty() ? num_units : step.first_unit[stage + 1];
    // The first unit reads tokens, the last one and some others targets, every block where documents begin.
    bool loads = begin == 0 || step.document_bytes > 0;
    for (int u = begin; u < end; ++u) loads |= reads_targets(step, u);
    if (loads && !std::exchange(loaded[cell.micro_batch], 1)) {
      Draft load = list.make(ActionKind::load_batch, -1, cell.micro_batch);
      load.cell = c;
      list.drafts.push_back(std::move(load));
    }
    const bool forward = cell.kind == Cell::Kind::forward;
    for (int i = 0; i < end - begin; ++i) {
      const int u = forward ? begin + i : end - 1 - i;
      ActionKind kind;
      if (!action_in(cell.kind, step.units[u], train, kind)) continue;
      Draft d = list.make(kind, u, cell.micro_batch);
      d.cell = c;
      list.drafts.push_back(std::move(d));
    }
  }
  return list;
}

void insert_recomputation(DraftList& list, const StepDeclaration& step) {
  std::vector<Draft> out;
  for (Draft& d : list.drafts) {
    const bool reads_saved = d.kind == ActionKind::backward || d.kind == ActionKind::backward_input;
    if (reads_saved && !step.units[d.owner].recomputed.empty()) {
      Draft again = list.make(ActionKind::recompute, d.owner, d.micro_batch);
      again.cell = d.cell;
      out.push_back(std::move(again));
    }
    out.push_back(std::move(d));
  }
  list.drafts = std::move(out);
}

}  // namespace trireme::schedule
