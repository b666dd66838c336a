// From a micro-batch's gradient to the optimizer: slots are reduced once, after their last writer; norm, clip and step
// come after all sums. Or nothing is clipped, and a group's step comes after its own sums and squares.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "trireme/schedule/validate_rules.h"

namespace trireme::schedule::rules {
namespace {

// Whether a list has no clip, and Steps that do not wait for the norm, if it has any: a stage may train nothing.
bool steps_early(const Schedule& s) {
  bool norm = false, early = false, late = false;
  for (const Action& a : s.actions) {
    if (a.kind == ActionKind::clip) return false;
    norm |= a.kind == ActionKind::gather_norm;
    if (a.kind == ActionKind::step) (norm ? late : early) = true;
  }
  return early || !late;
}

// The order of what happens to a group's gradient; kEarlyStep: in lists without a clip.
enum Rank { kReduced, kReplicas, kTied, kSquares, kEarlyStep, kNorm, kClip, kStep };

int rank_of(ActionKind kind) {
  using K = ActionKind;
  static const std::map<K, Rank> kRanks = {{K::reduce_gradient, kReduced},
                                           {K::all_reduce_gradient, kReduced},
                                           {K::gather_replicas, kReplicas},
                                           {K::reduce_replicas, kReplicas},
                                           {K::reduce_tied, kTied},
                                           {K::sum_squares, kSquares},
                                           {K::gather_norm, kNorm},
                                           {K::clip, kClip},
                                           {K::step, kStep}};
  const auto rank = kRanks.find(kind);
  return rank == kRanks.end() ? -1 : rank->second;
}

class Tail {
 public:
  Tail(const Schedule& s, Findings& f) : s_(s), f_(f), groups_(groups_of(s)), early_(steps_early(s)) {}

  void check() {
    std::map<std::pair<int, int>, int> seen;  // (rank, group) -> action; group -1 for those of the step
    std::map<ActionKind, bool> kinds;
    int loss = -1, last_loss = -1;
    for (int i = 0; i < static_cast<int>(s_.actions.size()); ++i) {
      const Action& a = s_.actions[i];
      if (a.kind == ActionKind::gather_loss) once(std::exchange(loss, i), i);
      if (is_computation(a.kind) && adds_loss(a)) last_loss = i;
      const int rank = a.kind == ActionKind::step ? step_rank() : rank_of(a.kind);
      if (a.kind == ActionKind::step)
        once(tile_seen(a), i);
      else if (rank > kReduced)
        once(find(seen, {rank, a.owner}), i);
      if (rank >= 0) after_its_successors(seen, rank, i), seen[{rank, a.owner}] = i, kinds[a.kind] = true;
    }
    if (loss < 0 && s_.has_loss) absent(ActionKind::gather_loss, -1, "the step's losses are never gathered");
    if (loss >= 0 && last_loss > loss) f_.at(last_loss, fmt::format("adds to the losses after {}", f_.name(loss)));
    if (trains(s_)) everything_there(seen, kinds);
  }

 private:
  static int find(const std::map<std::pair<int, int>, int>& seen, std::pair<int, int> key) {
    const auto it = seen.find(key);
    return it == seen.end() ? -1 : it->second;
  }
  int step_rank() const { return early_ ? kEarlyStep : kStep; }
  // The Step that has updated this one's tile, if there is one.
  int tile_seen(const Action& a) {
    int before = -1;
    const int at = static_cast<int>(&a - s_.actions.data());
    for (const Use& u : a.uses) {
      const Value& v = s_.values[u.value];
      if (u.access != Access::accumulate || v.kind == ValueKind::weights || v.kind == ValueKind::compute_shard)
        continue;
      if (v.instance > 0 && v.instance != a.part) f_.at(at, fmt::format("updates {}, which is not its tile", v.label));
      if (v.instance != a.part) continue;  // whole
      const auto [first, fresh] = updated_.try_emplace(s_.original(u.value), at);
      if (!fresh) before = first->second;
    }
    const auto [first, fresh] = tiles_.try_emplace({a.owner, a.part}, at);
    return fresh ? before : first->second;
  }
  bool adds_loss(const Action& a) const {
    return std::any_of(a.uses.begin(), a.uses.end(),
                       [&](const Use& u) { return s_.values[u.value].kind == ValueKind::loss; });
  }
  void once(int before, int i) {
    if (before >= 0) f_.at(i, fmt::format("runs again, after {}", f_.name(before)));
  }
  void absent(ActionKind kind, int group, const char* why) {
    f_.say(fmt::format("{} is missing: {}", f_.name(Action{.kind = kind, .owner = group}), why));
  }

  // An action that follows this one on the way of its group's gradient must not stand before it.
  void after_its_successors(const std::map<std::pair<int, int>, int>& seen, int rank, int i) {
    const int group = s_.actions[i].owner;
    for (const auto& [key, at] : seen) {
      const bool same = key.second == -1 || group == -1 || key.second == group;
      if (key.first > rank && same)
        f_.at(i, fmt::format("stands after {}; gradients go through sums, replicas, tied stages, squares, {}",
                             f_.name(at), early_ ? "step and norm" : "norm, clip and step"));
    }
  }

  void everything_there(const std::map<std::pair<int, int>, int>& seen, const std::map<ActionKind, bool>& kinds) {
    if (find(seen, {kNorm, -1}) < 0) absent(ActionKind::gather_norm, -1, "the gradient's norm is never known");
    if (!early_ && find(seen, {kClip, -1}) < 0) absent(ActionKind::clip, -1, "the gradient is never scaled");
    for (size_t v = 0; v < s_.values.size(); ++v) {
      const Value& state = s_.values[v];
      const bool of_the_optimizer = state.kind == kOptimizerState[0] || state.kind == kOptimizerState[1] ||
                                    state.kind == ValueKind::compensation || state.kind == ValueKind::master;
      if (state.persistent && of_the_optimizer && groups_.contains(state.owner) && state.instance > 0 &&
          !updated_.contains(static_cast<int>(v)))
        f_.say(fmt::format("{} is missing: {} is never updated",
                           f_.name(Action{.kind = ActionKind::step, .owner = state.owner, .part = state.instance}),
                           state.label));
    }
    const ValueIndex values(s_);
    for (int g : groups_) {
      if (const int v = values.find(ValueKind::gradient, g, -1);
          (early_ || is_tier(s_.values[v].memory)) && find(seen, {kSquares, g}) < 0)
        absent(ActionKind::sum_squares, g, "the norm leaves its gradient out");
      if (find(seen, {step_rank(), g}) < 0) absent(ActionKind::step, g, "its weights are never updated");
      for (ActionKind kind : {ActionKind::gather_replicas, ActionKind::reduce_replicas})
        if (kinds.count(kind) && find(seen, {kReplicas, g}) < 0)
          absent(kind, g, "its replicas would differ from now on");
    }
  }

  const Schedule& s_;
  Findings& f_;
  std::set<int> groups_;
  bool early_;
  std::map<int, int> updated_;  // value of the optimizer -> the Step that updates it
  std::map<std::pair<int, int>, int> tiles_;  // group, tile -> its Step
};

}  // namespace

std::set<int> groups_of(const Schedule& s) {
  std::set<int> groups;
  for (const Value& v : s.values)
    if (v.kind == ValueKind::gradient) groups.insert(v.owner);
  return groups;
}

void check_slots(const Schedule& s, Findings& f) {
  std::map<int, int> last_writer, taken;  // value -> action
  for (int i = 0; i < static_cast<int>(s.actions.size()); ++i)
    for (const Use& u : s.actions[i].uses) {
      const Value& v = s.values[u.value];
      if (v.kind != ValueKind::gradient_slot) continue;
      const auto reader = taken.find(u.value);
      if (u.access != Access::read) {
        if (reader != taken.end())
          f.at(i, fmt::format("adds to {} after {} reduced it", v.label, f.name(reader->second)));
        last_writer[u.value] = i;
        continue;
      }
      if (reader != taken.end())
        f.at(i, fmt::format("reduces {} again, after {}; the rule is once", v.label, f.name(reader->second)));
      taken[u.value] = i;
    }
  for (const auto& [value, writer] : last_writer)
    if (taken.count(value) == 0)
      f.at(writer, fmt::format("is the last to add to {}, which is never reduced", s.values[value].label));
}

void check_tail(const Schedule& s, Findings& f) { Tail(s, f).check(); }

}  // namespace trireme::schedule::rules
