// Values in the order of the list: a value is read only when it has been written completely; it does not change while
// it is read; it is not written twice, and somebody reads it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/schedule/validate_rules.h"

namespace trireme::schedule::rules {
namespace {

bool changes(Access access) { return access != Access::read; }

class Order {
 public:
  Order(const Schedule& s, Findings& f) : s_(s), f_(f), states_(s.values.size()) {
    for (int i = 0; i < count(); ++i)
      for (const Use& u : s.actions[i].uses) {
        State& state = states_[u.value];
        if (u.access == Access::write) state.maker = std::max(state.maker, i);
        // Weights that are gathered once a step are old until then.
        if (s.actions[i].kind == ActionKind::unshard && s.values[u.value].kind == ValueKind::weights)
          gathered_once_ = true, state.maker = i;
      }
  }

  void check() {
    for (int i = 0; i < count(); ++i) {
      check_completion(i);
      for (const Use& u : s_.actions[i].uses) check_use(i, u);
      for (const Use& u : s_.actions[i].uses) record(i, u);
    }
    for (size_t v = 0; v < states_.size(); ++v) check_wanted(static_cast<int>(v));
  }

 private:
  struct State {
    int maker = -1;                 // last action that writes it (and does not add)
    int written_by = -1;
    int under_way = -1, until = -1;  // the writer that ends last, and the last action during which it may run
    int read_by = -1, read_until = -1;
    int consumed_by = -1;
    bool used = false;              // by an action other than its maker
  };

  int count() const { return static_cast<int>(s_.actions.size()); }
  const Queue& queue(int index) const { return s_.actions[index].queue; }

  std::string moment(int index) const { return index < count() ? f_.name(index) : "the end"; }

  bool has_to_be_made(const Value& v, const Action& reader) const {
    if (v.home >= 0) return true;
    if (v.kind == ValueKind::weights) return gathered_once_ && is_computation(reader.kind);
    return (!v.persistent && !v.held) || v.kind == ValueKind::norm_all;
  }

  void check_completion(int i) {
    const int at = s_.actions[i].completes_at;
    if (at < 0) return;
    if (at <= i || at > count())
      f_.at(i, fmt::format("would complete before {}: an action completes after it starts and before the end",
                           moment(at)));
    else if (queue(i).kind == QueueKind::compute)
      f_.at(i, fmt::format("would complete at #{}: only communication can run beside other actions", at));
  }

  void check_use(int i, const Use& u) {
    const Value& v = s_.values[u.value];
    const State& state = states_[u.value];
    if (u.access == Access::write && state.written_by >= 0 && !v.persistent)
      f_.at(i, fmt::format("writes {} again, which {} made", v.label, f_.name(state.written_by)));
    if (u.access != Access::write && state.written_by < 0 && has_to_be_made(v, s_.actions[i]))
      f_.at(i, fmt::format("reads {} before anything wrote it{}", v.label,
                           state.maker < 0 ? std::string() : fmt::format("; {} does", f_.name(state.maker))));
    // Actions of one queue run one after the other.
    if (state.until >= i && queue(state.under_way) != queue(i))
      f_.at(i, fmt::format("{} {} while its writer {} is still under way, until {}",
                           u.access == Access::write ? "overwrites" : "reads", v.label, f_.name(state.under_way),
                           moment(state.until + 1)));
    if (changes(u.access) && state.read_until >= i && queue(state.read_by) != queue(i))
      f_.at(i, fmt::format("changes {} while {} reads it, until {}", v.label, f_.name(state.read_by),
                           moment(state.read_until + 1)));
    if (state.consumed_by >= 0)
      f_.at(i, fmt::format("uses {} after {} consumed it", v.label, f_.name(state.consumed_by)));
    if (i < v.first || end_of(s_, i) > v.last)
      f_.at(i, fmt::format("uses {} outside its life #{}..#{}", v.label, v.first, v.last));
  }

  void record(int i, const Use& u) {
    State& state = states_[u.value];
    const int end = end_of(s_, i);
    if (u.access == Access::write || u.access == Access::accumulate) {
      state.written_by = i;
      if (end >= state.until) state.under_way = i, state.until = end;
    }
    if (u.access != Access::write) {
      state.used = true;
      if (end >= state.read_until) state.read_by = i, state.read_until = end;
    }
    if (u.access == Access::consume) state.consumed_by = i;
  }

  // Values that go from one action to another need a reader. Not so batches, which are loaded whole even if half is
  // needed; and saved values, which nothing reads if they are recomputed, or in evaluation.
  void check_wanted(int value) {
    const Value& v = s_.values[value];
    const State& state = states_[value];
    if (v.persistent || state.used || state.written_by < 0) return;
    if (v.kind == ValueKind::work || v.kind == ValueKind::step_work || v.kind == ValueKind::saved ||
        v.kind == ValueKind::tokens || v.kind == ValueKind::targets || v.kind == ValueKind::documents)
      return;
    // The last unit's output is logits, which the caller reads.
    if (v.kind == ValueKind::boundary && v.owner + 1 == static_cast<int>(s_.unit_names.size())) return;
    f_.at(state.written_by, fmt::format("makes {}, which nothing reads", v.label));
  }

  const Schedule& s_;
  Findings& f_;
  std::vector<State> states_;
  bool gathered_once_ = false;
};

}  // namespace

void check_order(const Schedule& s, Findings& f) { Order(s, f).check(); }

void check_takeovers(const Schedule& s, Findings& f) {
  std::vector<char> seen(s.values.size(), 0);
  for (int i = 0; i < static_cast<int>(s.actions.size()); ++i)
    for (const Use& u : s.actions[i].uses) {
      const Value& v = s.values[u.value];
      if (std::exchange(seen[u.value], 1) || v.takes_over < 0) continue;
      const Value& before = s.values[v.takes_over];
      const bool consumes = std::any_of(s.actions[i].uses.begin(), s.actions[i].uses.end(), [&](const Use& other) {
        return other.value == v.takes_over && other.access == Access::consume;
      });
      if (!consumes)
        f.at(i, fmt::format("makes {} in the bytes of {}, which it does not consume", v.label, before.label));
      if (v.offset != before.offset || v.memory != before.memory)
        f.at(i, fmt::format("makes {} in the bytes of {}, which lies elsewhere", v.label, before.label));
    }
}

}  // namespace trireme::schedule::rules
