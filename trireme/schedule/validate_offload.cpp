// Values in a tier: only Fetches and Evicts touch them. A Fetch makes a copy of the whole value, an Evict writes a copy
// back. What an action changed in a copy reaches the home before the next copy is made, and before the list ends.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/schedule/validate_rules.h"

namespace trireme::schedule::rules {
namespace {

class Offload {
 public:
  Offload(const Schedule& s, Findings& f) : s_(s), f_(f) {}

  void check() {
    for (size_t v = 0; v < s_.values.size(); ++v) check_copy(static_cast<int>(v));
    for (int i = 0; i < static_cast<int>(s_.actions.size()); ++i) {
      const Action& a = s_.actions[i];
      if (is_transfer(a.kind))
        transfer(i, a);
      else
        for (const Use& u : a.uses) use(i, u);
    }
    for (const auto& [home, state] : homes_)
      if (state.changed_by >= 0)
        f_.at(state.changed_by, fmt::format("changes {}, which is never written back", label(state.copy)));
  }

 private:
  struct Home {
    int copy = -1;  // the last one
    int changed_by = -1;  // an action whose change of that copy has not been written back
  };

  const std::string& label(int value) const { return s_.values[value].label; }

  void check_copy(int value) {
    const Value& copy = s_.values[value];
    if (copy.home < 0) return;
    if (copy.home >= static_cast<int>(s_.values.size()))
      return f_.say(fmt::format("{} is a copy of no value", copy.label));
    const Value& home = s_.values[copy.home];
    if (!is_tier(home.memory) || is_tier(copy.memory) || copy.persistent || home.kind != copy.kind ||
        home.owner != copy.owner || home.micro_batch != copy.micro_batch || home.instance != copy.instance ||
        home.bytes != copy.bytes)
      f_.say(fmt::format("{} is no copy of {}", copy.label, home.label));
  }

  void transfer(int i, const Action& a) {
    const bool fetch = a.kind == ActionKind::fetch;
    const bool two = a.uses.size() == 2 && a.uses[0].access == Access::read &&
                     (a.uses[1].access == Access::write || (!fetch && a.uses[1].access == Access::accumulate));
    const int home = two ? a.uses[fetch ? 0 : 1].value : -1, copy = two ? a.uses[fetch ? 1 : 0].value : -1;
    if (!two || home != a.owner || s_.values[copy].home != home || !is_tier(s_.values[home].memory))
      return f_.at(i, "moves something else than a value and its copy");
    if (a.queue.lane != (s_.values[home].memory == Memory::disk ? kDiskLane : kHostLane) ||
        a.bytes != s_.values[home].bytes)
      f_.at(i, fmt::format("does not move {} on its way", label(home)));
    Home& state = homes_[home];
    if (!fetch) {
      if (state.copy != copy) f_.at(i, fmt::format("writes back {}, which is not the newest copy", label(copy)));
      state.changed_by = -1;
      return;
    }
    if (state.changed_by >= 0)
      f_.at(i, fmt::format("copies {} before {} is written back, which {} changed", label(home), label(state.copy),
                           f_.name(state.changed_by)));
    state = {copy, -1};
  }

  void use(int i, const Use& u) {
    const Value& v = s_.values[u.value];
    if (is_tier(v.memory)) return f_.at(i, fmt::format("uses {}, which rests in another memory", v.label));
    if (v.home < 0) return;
    Home& state = homes_[v.home];
    if (u.access == Access::write && state.copy != u.value) {  // made anew
      if (state.changed_by >= 0)
        f_.at(i, fmt::format("makes {} anew before {} is written back", v.label, label(state.copy)));
      state.copy = u.value;
    }
    if (state.copy != u.value) {
      f_.at(i, fmt::format("uses {}, which is not the newest copy", v.label));
      state = {u.value, -1};
    }
    if (u.access == Access::write || u.access == Access::accumulate) state.changed_by = i;
    if (u.access == Access::consume) state.changed_by = -1;
  }

  const Schedule& s_;
  Findings& f_;
  std::map<int, Home> homes_;
};

}  // namespace

void check_offload(const Schedule& s, Findings& f) { Offload(s, f).check(); }

}  // namespace trireme::schedule::rules
