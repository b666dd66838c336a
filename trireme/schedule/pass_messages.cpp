// Messages between pipeline ranks. A receive stands one cell before its reader, so that it overlaps that cell. A send
// must be complete only when the receiver is ready for it, so that no rank waits for its peer's buffer.
#include <map>

#include "trireme/schedule/draft.h"

namespace trireme::schedule {

void insert_messages(DraftList& list, const StepDeclaration& step, const PipelineTiming& timing) {
  if (step.stages.ranks == 1) return;
  const int rank = step.pipeline_rank;
  std::map<int, int> head;  // cell -> id of its first draft; a cell without drafts (a weight half) stands for the next
  for (auto d = list.drafts.rbegin(); d != list.drafts.rend(); ++d) head[d->cell] = d->id;
  const auto at_cell = [&](int cell) {
    const auto it = head.lower_bound(cell);
    return it == head.end() ? kTail : it->second;
  };
  std::map<int, std::vector<Draft>> before, after;  // draft id -> receives to post before it; cell -> sends behind it
  for (const Message& m : plan_messages(timing, step.stages)) {
    // The boundary after the stage's last unit; the gradient of the one before its first.
    const int unit = m.lane == kActivations ? step.first_unit[m.stage + 1] - 1 : step.first_unit[m.stage] - 1;
    if (m.to == rank) {
      Draft d = list.make(ActionKind::receive, unit, m.micro_batch);
      d.queue.peer = m.from, d.queue.lane = m.lane;
      d.completes_before = at_cell(m.to_cell);
      before[at_cell(m.post_cell)].push_back(std::move(d));
    }
    if (m.from == rank) {
      Draft d = list.make(ActionKind::send, unit, m.micro_batch);
      d.queue.peer = m.to, d.queue.lane = m.lane;
      d.completes_before = at_cell(m.gone_cell);
      after[m.from_cell].push_back(std::move(d));
    }
  }
  std::vector<Draft> out;
  for (size_t i = 0; i < list.drafts.size(); ++i) {
    const int id = list.drafts[i].id, cell = list.drafts[i].cell;
    for (Draft& d : before[id]) out.push_back(std::move(d));
    out.push_back(std::move(list.drafts[i]));
    if (i + 1 == list.drafts.size() || list.drafts[i + 1].cell != cell)
      for (Draft& d : after[cell]) out.push_back(std::move(d));
  }
  list.drafts = std::move(out);
}

}  // namespace trireme::schedule
