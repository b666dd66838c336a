// The optimizer's Steps, and the sums of squares of gradients that are gone when the norm is gathered. Most lists have
// all Steps at their end, behind the norm, by which gradients are clipped. Where nothing is clipped, a group's Step can
// follow the last reduction of its gradient, inside the backward pass: then its gradient lives only until there, and
// what rests in a tier is fetched and written back beside the passes of other units. The bits are the same.
//
// That reduction is why a Step may write weights that several ranks share: no rank takes part in it before its last
// pass that reads the group's weights.
//
// Source    Lv et al., "Full Parameter Fine-tuning for Large Language Models with Limited Resources" (LOMO, 2023)
#include <algorithm>
#include <iterator>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/schedule/draft.h"

namespace trireme::schedule {
namespace {

// Whether the sum of a group's gradients rests in a tier.
bool gradient_leaves(const StepDeclaration& step, int group) {
  const GroupDeclaration& g = step.groups[group];
  const Sharding& s = step.sharding;
  const bool of_this_rank = !s.whole_gradients || !s.several_ranks || (!s.local && g.tied_over_stages);
  return step.offload.gradients != Tier::none && g.trained && g.leaves && g.owned > 0 && of_this_rank;
}

bool makes_gradient(ActionKind kind) {
  return kind == ActionKind::reduce_gradient || kind == ActionKind::all_reduce_gradient ||
         kind == ActionKind::gather_replicas || kind == ActionKind::reduce_replicas || kind == ActionKind::reduce_tied;
}

}  // namespace

std::vector<Draft> steps_of(DraftList& list, const StepDeclaration& step, int group) {
  std::vector<Draft> steps;
  for (int tile = 0; tile < step.groups[group].step_tiles(); ++tile) {
    steps.push_back(list.make(ActionKind::step, group, -1));
    steps.back().part = tile;
  }
  return steps;
}

void insert_early_steps(DraftList& list, const StepDeclaration& step) {
  for (int g : trained_groups(step, local_groups(step))) {
    if (!step.steps_in_backward && !gradient_leaves(step, g)) continue;
    // Behind the last action that makes the gradient, once it is complete.
    std::vector<int> makers, place(static_cast<size_t>(list.next_id));  // of each draft, by its id
    for (int i = 0; i < std::ssize(list.drafts); ++i) {
      place[static_cast<size_t>(list.drafts[i].id)] = i;
      if (makes_gradient(list.drafts[i].kind) && list.drafts[i].owner == g) makers.push_back(i);
    }
    check_invariant(!makers.empty(), "each gradient is reduced");
    const auto end_of = [&](const Draft& d) {
      if (d.completes_before == -1) return 0;
      return place[static_cast<size_t>(d.completes_before == kTail ? list.tail_id : d.completes_before)];
    };
    const int at = std::max(makers.back() + 1, end_of(list.drafts[makers.back()]));
    std::vector<Draft> early = {list.make(ActionKind::sum_squares, g, -1)};
    if (step.steps_in_backward)
      for (const Draft& d : steps_of(list, step, g)) early.push_back(d);
    for (int i : makers)
      if (end_of(list.drafts[i]) >= at) list.drafts[i].completes_before = early.front().id;
    list.drafts.insert(list.drafts.begin() + at, early.begin(), early.end());
  }
}

}  // namespace trireme::schedule
