#include "trireme/schedule/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "trireme/schedule/validate_rules.h"

namespace trireme::schedule {
namespace rules {

std::string Findings::name(int index) const {
  return fmt::format("#{} {}", index, describe(schedule_, schedule_.actions[index]));
}

int end_of(const Schedule& s, int index) {
  const int at = std::min(s.actions[index].completes_at, static_cast<int>(s.actions.size()));
  return at > index ? at - 1 : index;
}

bool is_reduction(ActionKind kind) {
  return kind == ActionKind::reduce_gradient || kind == ActionKind::all_reduce_gradient;
}

bool trains(const Schedule& s) {
  return std::any_of(s.actions.begin(), s.actions.end(),
                     [](const Action& a) { return a.kind == ActionKind::step || writes_gradient(a.kind); });
}

// How often most passes occur: a missing action, or one with a wrong micro-batch, does not change that.
int num_micro_batches(const Schedule& s) {
  std::map<std::pair<ActionKind, int>, int> times;  // by kind and unit
  for (const Action& a : s.actions)
    if (is_computation(a.kind) || a.kind == ActionKind::load_batch || a.queue.peer >= 0) ++times[{a.kind, a.owner}];
  std::map<int, int> votes;
  for (const auto& [what, count] : times) ++votes[count];
  int most = 0;
  for (const auto& [count, number] : votes)
    if (number >= votes[most]) most = count;
  return most;
}

}  // namespace rules

std::vector<std::string> validate_list(const Schedule& schedule, const Arena& arena) {
  if (schedule.actions.empty()) return {};  // a list that the plan does not need
  rules::Findings f(schedule);
  rules::check_targets(schedule, f);
  if (!f.empty()) return f.take();
  rules::check_uses(schedule, f);
  rules::check_passes(schedule, f);
  rules::check_order(schedule, f);
  rules::check_takeovers(schedule, f);
  rules::check_offload(schedule, f);
  rules::check_slots(schedule, f);
  rules::check_sums(schedule, f);
  rules::check_tail(schedule, f);
  rules::check_bytes(schedule, arena, f);
  return f.take();
}

}  // namespace trireme::schedule
