// Reductions of gradients. When the last backward has added to a group's gradient of a micro-batch, the gradient is
// reduced while the next computations run. With `local` accumulation, backward adds each micro-batch to the rank's own
// sum; this sum is reduced once, after the last micro-batch.
#include <map>
#include <utility>

#include "trireme/schedule/draft.h"

namespace trireme::schedule {
namespace {

class Reductions {
 public:
  Reductions(DraftList& list, const StepDeclaration& step) : list_(list), step_(step) {
    for (const Draft& d : list.drafts) {
      if (is_computation(d.kind)) computations_.push_back(d.id);
      if (!writes_gradient(d.kind)) continue;
      for (int g : trained_groups(step, step.units[d.owner].groups)) {
        last_of_micro_batch_[{g, d.micro_batch}] = d.id;
        last_of_step_[g] = d.id;
      }
    }
  }

  void run() {
    std::vector<Draft> out, waiting;  // reductions that an unshard may still precede
    for (Draft& d : list_.drafts) {
      if (!waiting.empty() && !(d.kind == ActionKind::unshard && d.before_reduction)) flush(waiting, out);
      if (is_computation(d.kind)) ++done_;
      const bool writer = writes_gradient(d.kind);
      const Draft current = d;
      out.push_back(std::move(d));
      if (!writer) continue;
      for (int g : trained_groups(step_, step_.units[current.owner].groups))
        if (last_of_micro_batch_.at({g, current.micro_batch}) == current.id) reduce(g, current, waiting);
    }
    flush(waiting, out);
    list_.drafts = std::move(out);
  }

 private:
  static void flush(std::vector<Draft>& waiting, std::vector<Draft>& out) {
    for (Draft& w : waiting) out.push_back(std::move(w));
    waiting.clear();
  }

  void reduce(int group, const Draft& writer, std::vector<Draft>& out) {
    const Sharding& s = step_.sharding;
    if (s.local && last_of_step_.at(group) != writer.id) return;
    Draft r = list_.make(s.whole_gradients ? ActionKind::all_reduce_gradient : ActionKind::reduce_gradient, group,
                         s.local ? -1 : writer.micro_batch);
    r.accumulate = !s.local && std::exchange(begun_[group], true);
    const size_t until = done_ + static_cast<size_t>(step_.reduce_lag);
    r.completes_before = until < computations_.size() ? computations_[until] : kTail;
    out.push_back(std::move(r));
  }

  DraftList& list_;
  const StepDeclaration& step_;
  std::vector<int> computations_;
  size_t done_ = 0;  // computations up to and with the current one
  std::map<std::pair<int, int>, int> last_of_micro_batch_;
  std::map<int, int> last_of_step_;
  std::map<int, bool> begun_;
};

}  // namespace

void insert_reductions(DraftList& list, const StepDeclaration& step) { Reductions(list, step).run(); }

void append_tail(DraftList& list, const StepDeclaration& step, bool train) {
  const auto add = [&](ActionKind kind, int owner) {
    list.drafts.push_back(list.make(kind, owner, -1));
    return list.drafts.back().id;
  };
  list.tail_id = add(ActionKind::gather_loss, -1);
  if (!train) return;
  const std::vector<int> groups = trained_groups(step, local_groups(step));
  const size_t first = list.drafts.size();
  if (step.sharding.replicas)
    for (int g : groups) add(step.sharding.ordered ? ActionKind::gather_replicas : ActionKind::reduce_replicas, g);
  const size_t end = list.drafts.size();
  for (int g : groups)
    if (step.groups[g].tied_over_stages) add(ActionKind::reduce_tied, g);
  add(ActionKind::gather_norm, -1);
  // Exchanges over replicas go on until the first tied sum, or the norm, reads their results.
  for (size_t i = first; i < end; ++i) list.drafts[i].completes_before = list.drafts[end].id;
  if (step.steps_in_backward) return;  // insert_early_steps()
  add(ActionKind::clip, -1);
  for (int g : groups)
    for (Draft& d : steps_of(list, step, g)) list.drafts.push_back(std::move(d));
}

}  // namespace trireme::schedule
