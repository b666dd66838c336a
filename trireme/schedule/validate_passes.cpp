// Every pass of every local unit over every micro-batch is there once, in the right order.
#include <fmt/format.h>

#include <map>
#include <set>
#include <tuple>

#include "trireme/schedule/validate_rules.h"

namespace trireme::schedule::rules {
namespace {

using Key = std::tuple<ActionKind, int, int>;  // kind, unit, micro-batch

bool is_pass(ActionKind kind) { return is_computation(kind) || kind == ActionKind::load_batch; }

class Passes {
 public:
  Passes(const Schedule& s, Findings& f) : s_(s), f_(f), count_(num_micro_batches(s)) {
    for (int i = 0; i < static_cast<int>(s.actions.size()); ++i) {
      const Action& a = s.actions[i];
      if (a.micro_batch >= count_)
        f.at(i, fmt::format("is of micro-batch {}, and the step has {}", a.micro_batch, count_));
      if (!is_pass(a.kind)) continue;
      const auto [first, fresh] = at_.try_emplace(Key{a.kind, a.owner, a.micro_batch}, i);
      if (!fresh) f.at(i, fmt::format("runs again, after {}", f.name(first->second)));
      kinds_[a.owner].insert(a.kind);
    }
  }

  void check() {
    for (const auto& [unit, kinds] : kinds_) check_unit(unit, kinds);
  }

 private:
  int find(ActionKind kind, int unit, int mb) const {
    const auto it = at_.find({kind, unit, mb});
    return it == at_.end() ? -1 : it->second;
  }
  std::string missing(ActionKind kind, int unit, int mb) const {
    return describe(s_, Action{.kind = kind, .owner = unit, .micro_batch = mb});
  }

  void check_unit(int unit, const std::set<ActionKind>& kinds) {
    // A unit runs the same passes for all micro-batches, and both halves of a backward or none.
    std::set<ActionKind> wanted = kinds;
    const bool halves = kinds.count(ActionKind::backward_input) || kinds.count(ActionKind::backward_weight);
    if (halves) wanted.insert({ActionKind::backward_input, ActionKind::backward_weight});
    for (int mb = 0; mb < count_; ++mb) {
      for (ActionKind kind : wanted)
        if (find(kind, unit, mb) < 0)
          f_.say(fmt::format("{} is missing: every micro-batch goes through every pass of a unit once",
                             missing(kind, unit, mb)));
      if (unit < 0) continue;
      in_order(ActionKind::forward, ActionKind::recompute, unit, mb);
      in_order(ActionKind::forward, ActionKind::backward, unit, mb);
      in_order(ActionKind::recompute, ActionKind::backward, unit, mb);
      in_order(ActionKind::forward, ActionKind::backward_input, unit, mb);
      in_order(ActionKind::recompute, ActionKind::backward_input, unit, mb);
      in_order(ActionKind::backward_input, ActionKind::backward_weight, unit, mb);
    }
    if (halves && kinds.count(ActionKind::backward))
      f_.say(fmt::format("{} runs backward both whole and in halves", s_.unit_names[unit]));
  }

  void in_order(ActionKind before, ActionKind after, int unit, int mb) {
    const int first = find(before, unit, mb), second = find(after, unit, mb);
    if (first < 0 || second < 0 || first < second) return;
    f_.at(second, fmt::format("stands before {}", f_.name(first)));
  }

  const Schedule& s_;
  Findings& f_;
  int count_;
  std::map<Key, int> at_;
  std::map<int, std::set<ActionKind>> kinds_;
};

}  // namespace

void check_passes(const Schedule& s, Findings& f) { Passes(s, f).check(); }

}  // namespace trireme::schedule::rules
