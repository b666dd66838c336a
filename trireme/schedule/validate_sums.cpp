// Rules for sums of gradients: every unit writes the gradients of its groups once a micro-batch. Slots are reduced in
// the order of the micro-batches; the first reduction starts the sum. If backward adds to the rank's own sum, this sum
// is started once and reduced once, after the last micro-batch. A frozen group has only weights, which do not change.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "trireme/schedule/validate_rules.h"

namespace trireme::schedule::rules {
namespace {

bool holds_gradients(ValueKind kind) {
  return kind == ValueKind::gradient_slot || kind == ValueKind::local_gradient || kind == ValueKind::gradient;
}

// Where backward sums all micro-batches of a group: group -> value, or -1 if each micro-batch has a slot.
std::map<int, int> own_sums(const Schedule& s) {
  const bool slots =
      std::any_of(s.values.begin(), s.values.end(), [](const Value& v) { return v.kind == ValueKind::gradient_slot; });
  const ValueIndex values(s);
  std::map<int, int> sums;
  for (int g : groups_of(s)) {
    const int partial = slots ? -1 : values.find(ValueKind::local_gradient, g, -1);
    sums[g] = slots || partial >= 0 ? partial : values.find(ValueKind::gradient, g, -1);
  }
  return sums;
}

// The gradients that backward writes: of which groups, and where.
class Writers {
 public:
  Writers(const Schedule& s, Findings& f) : s_(s), f_(f), count_(num_micro_batches(s)), sums_(own_sums(s)) {
    for (const Action& a : s.actions) {
      if (!is_computation(a.kind)) continue;
      for (const Use& u : a.uses)
        if (const Value& v = s.values[u.value]; v.kind == ValueKind::parameters || v.kind == ValueKind::weights)
          groups_[a.owner].insert(v.owner);
    }
  }

  // Every unit writes the gradient of each of its groups once a micro-batch, and no other's.
  void check() {
    std::set<std::pair<int, int>> wrote;  // unit, micro-batch
    for (int i = 0; i < static_cast<int>(s_.actions.size()); ++i) {
      const Action& a = s_.actions[i];
      if (!writes_gradient(a.kind)) continue;
      wrote.insert({a.owner, a.micro_batch});
      std::set<int> written;
      for (const Use& u : a.uses) {
        const Value& v = s_.values[u.value];
        if (!holds_gradients(v.kind)) continue;
        const auto sum = sums_.find(v.owner);
        const int place = s_.original(u.value);
        const bool right =
            sum != sums_.end() && (sum->second < 0 ? v.kind == ValueKind::gradient_slot : sum->second == place);
        if (!right || !groups_[a.owner].contains(v.owner))
          f_.at(i, fmt::format("adds to {}, where its gradient does not belong", v.label));
        if (!written.insert(v.owner).second) f_.at(i, fmt::format("adds to {} twice", v.label));
      }
      for (int g : groups_[a.owner])
        if (!written.contains(g) && !s_.frozen_groups.contains(g))
          f_.at(i, fmt::format("leaves out the gradient of {}", s_.group_names[g]));
    }
    for (const auto& [unit, groups] : groups_)
      for (int mb = 0; mb < count_; ++mb)
        if (!wrote.contains({unit, mb}))
          f_.say(fmt::format("{} is missing: no gradient of micro-batch {}",
                             f_.name(Action{.kind = ActionKind::backward, .owner = unit, .micro_batch = mb}), mb));
  }

 private:
  const Schedule& s_;
  Findings& f_;
  int count_;
  std::map<int, std::set<int>> groups_;  // unit -> those that it reads
  const std::map<int, int> sums_;
};

class Sums {
 public:
  Sums(const Schedule& s, Findings& f) : s_(s), f_(f), count_(num_micro_batches(s)) {
    for (int i = 0; i < static_cast<int>(s.actions.size()); ++i) {
      const Action& a = s.actions[i];
      if (is_reduction(a.kind)) reduced_[a.owner].push_back(i), reduction_ = a.kind;
      if (!writes_gradient(a.kind)) continue;
      for (const Use& u : a.uses)
        if (holds_gradients(s.values[u.value].kind)) writers_[s.original(u.value)].emplace_back(i, u.access);
    }
  }

  void check() {
    for (const auto& [group, sum] : own_sums(s_))
      if (sum >= 0)
        own_sum(group, sum);
      else
        sums(group, reduction_, reduced_[group]);
  }

 private:
  // Backward adds to the rank's own sum: the first pass starts it, and it is reduced once, after the last pass.
  void own_sum(int group, int sum) {
    const bool in_place = s_.values[sum].kind == ValueKind::gradient;
    const std::string& label = s_.values[sum].label;
    const auto& adds = writers_[sum];
    if (adds.empty()) f_.say(fmt::format("nothing adds to {}", label));
    for (const auto& [i, access] : adds) {
      const bool starts = i == adds.front().first;
      if (starts == (access == Access::accumulate))
        f_.at(i, starts ? fmt::format("adds to {}, which nothing has begun", label)
                        : fmt::format("overwrites {}, which {} began", label, f_.name(adds.front().first)));
    }
    const std::vector<int>& reduced = reduced_[group];
    if (reduced.empty())
      f_.say(fmt::format("{} is missing: the sum of the step's micro-batches is never reduced",
                         f_.name(Action{.kind = reduction_, .owner = group})));
    for (size_t k = 0; k < reduced.size(); ++k) {
      const int i = reduced[k];
      const Action& a = s_.actions[i];
      if (k > 0) f_.at(i, fmt::format("reduces a gradient again, after {}", f_.name(reduced[k - 1])));
      if (!uses(a, sum)) f_.at(i, fmt::format("does not reduce {}", label));
      if (a.accumulate || (!in_place && writes_onto(a)))
        f_.at(i, "adds the sum of the step's micro-batches to what lies there");
      if (a.micro_batch != -1) f_.at(i, "is of one micro-batch; local accumulation reduces their sum");
      for (const auto& [add, access] : adds)
        if (add > i) f_.at(add, fmt::format("adds to a gradient that was reduced by {}", f_.name(i)));
    }
  }

  bool uses(const Action& a, int value) const {
    return std::any_of(a.uses.begin(), a.uses.end(), [&](const Use& u) { return s_.original(u.value) == value; });
  }

  // One reduction for each micro-batch, in their order, which is the order of a single rank.
  void sums(int group, ActionKind kind, const std::vector<int>& found) {
    std::map<int, int> by_micro_batch;
    int before = -1;
    for (int i : found) {
      const Action& a = s_.actions[i];
      const auto [first, fresh] = by_micro_batch.try_emplace(a.micro_batch, i);
      if (!fresh) f_.at(i, fmt::format("folds a gradient again, after {}; the rule is once", f_.name(first->second)));
      if (before >= 0 && s_.actions[before].micro_batch > a.micro_batch)
        f_.at(i, fmt::format("stands after {}: sums go by micro-batch", f_.name(before)));
      const bool starts = before < 0;
      if (starts == a.accumulate || starts == writes_onto(a)) f_.at(i, starts ? adds(found) : overwrites(found));
      before = i;
    }
    for (int mb = 0; mb < count_; ++mb)
      if (by_micro_batch.count(mb) == 0)
        f_.say(fmt::format("{} is missing: the gradient of micro-batch {} is never reduced",
                           f_.name(Action{.kind = kind, .owner = group, .micro_batch = mb}), mb));
  }

  std::string adds(const std::vector<int>& found) const {
    const auto starter = std::find_if(found.begin(), found.end(), [&](int i) { return !s_.actions[i].accumulate; });
    return starter == found.end() ? "adds to the step's gradient, which nothing starts"
                                  : fmt::format("adds to the step's gradient before {} starts it", f_.name(*starter));
  }
  std::string overwrites(const std::vector<int>& found) const {
    return fmt::format("overwrites the step's gradient, which {} began", f_.name(found.front()));
  }

  // Whether the action adds to its result.
  bool writes_onto(const Action& a) const {
    for (const Use& u : a.uses)
      if (u.access == Access::accumulate) return true;
    return false;
  }

  const Schedule& s_;
  Findings& f_;
  int count_;
  ActionKind reduction_ = ActionKind::reduce_gradient;
  std::map<int, std::vector<int>> reduced_;  // group -> reductions
  std::map<int, std::vector<std::pair<int, Access>>> writers_;  // value -> passes, in the order of the list
};

bool is_of_training(ValueKind kind) {
  return holds_gradients(kind) || kind == kOptimizerState[0] || kind == kOptimizerState[1] ||
         kind == ValueKind::compensation;
}

void check_frozen(const Schedule& s, Findings& f) {
  for (const Value& v : s.values)
    if (is_of_training(v.kind) && s.frozen_groups.contains(v.owner))
      f.say(fmt::format("{} is there, but {} is frozen", v.label, s.group_names[v.owner]));
  for (int i = 0; i < static_cast<int>(s.actions.size()); ++i) {
    const ActionKind kind = s.actions[i].kind;
    const bool trains_it = is_reduction(kind) || kind == ActionKind::gather_replicas ||
                           kind == ActionKind::reduce_replicas || kind == ActionKind::reduce_tied ||
                           kind == ActionKind::step;
    if (trains_it && s.frozen_groups.contains(s.actions[i].owner)) f.at(i, "trains a group that is frozen");
  }
}

}  // namespace

void check_sums(const Schedule& s, Findings& f) {
  if (!trains(s)) return;
  check_frozen(s, f);
  Writers(s, f).check();
  Sums(s, f).check();
}

}  // namespace trireme::schedule::rules
