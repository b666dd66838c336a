#include "trireme/schedule/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace trireme::schedule {
namespace {

using Problems = std::vector<std::string>;

int end_of(const Schedule& s, int index) {
  const int at = s.actions[index].completes_at;
  return at > index ? at - 1 : index;
}

void check_completion(const Schedule& s, Problems& problems) {
  for (size_t i = 0; i < s.actions.size(); ++i) {
    const int at = s.actions[i].completes_at;
    if (at >= 0 && (at <= static_cast<int>(i) || at > static_cast<int>(s.actions.size())))
      problems.push_back(fmt::format("#{} {} would complete at #{}: an action completes after it starts", i,
                                     describe(s, s.actions[i]), at));
  }
}

// Reads follow writes, and an asynchronous write is complete before another queue reads it.
void check_order(const Schedule& s, Problems& problems) {
  struct Written {
    int until = -1;  // last action during which the latest write may be under way
    Queue queue = Queue::compute;
  };
  std::vector<Written> written(s.values.size());
  std::vector<int> consumed_by(s.values.size(), -1);
  const auto report = [&](int i, const std::string& what) {
    problems.push_back(fmt::format("#{} {} {}", i, describe(s, s.actions[i]), what));
  };
  for (int i = 0; i < static_cast<int>(s.actions.size()); ++i) {
    const Action& a = s.actions[i];
    for (const Use& u : a.uses) {
      const Value& v = s.values[u.value];
      const Written& w = written[u.value];
      if (u.access != Access::write && !v.persistent && w.until < 0)
        report(i, fmt::format("reads {} before anything wrote it", v.label));
      if (u.access != Access::write && w.until >= i && w.queue != a.queue)
        report(i, fmt::format("reads {} while its writer is still under way until #{}", v.label, w.until));
      if (consumed_by[u.value] >= 0)
        report(i, fmt::format("uses {} after #{} consumed it", v.label, consumed_by[u.value]));
      if (i < v.first || end_of(s, i) > v.last)
        report(i, fmt::format("uses {} outside its life #{}..#{}", v.label, v.first, v.last));
    }
    for (const Use& u : a.uses) {
      if (u.access == Access::write || u.access == Access::accumulate) written[u.value] = {end_of(s, i), a.queue};
      if (u.access == Access::consume) consumed_by[u.value] = i;
    }
  }
}

// Values alive at the same time lie apart. Sweep by action; at each, the newcomers against the living.
void check_bytes(const Schedule& s, const Arena& arena, Problems& problems) {
  std::vector<std::vector<int>> starts(s.actions.size());
  for (size_t v = 0; v < s.values.size(); ++v) {
    const Value& value = s.values[v];
    if (value.first < 0) continue;
    if (value.offset < 0 || value.offset + value.bytes > arena.bytes[static_cast<int>(value.memory)])
      problems.push_back(fmt::format("{} lies at {}..{}, outside its region of {} bytes", value.label, value.offset,
                                     value.offset + value.bytes, arena.bytes[static_cast<int>(value.memory)]));
    starts[value.first].push_back(static_cast<int>(v));
  }
  std::map<int64_t, int> alive[kNumMemories];  // offset -> value; disjoint as long as no rule is broken
  std::vector<std::vector<int>> ends(s.actions.size() + 1);
  for (size_t i = 0; i < s.actions.size(); ++i) {
    for (int v : ends[i]) {
      auto& region = alive[static_cast<int>(s.values[v].memory)];
      auto it = region.find(s.values[v].offset);
      if (it != region.end() && it->second == v) region.erase(it);
    }
    for (int v : starts[i]) {
      const Value& value = s.values[v];
      if (value.bytes == 0) continue;
      auto& region = alive[static_cast<int>(value.memory)];
      auto next = region.lower_bound(value.offset);
      int other = -1;
      if (next != region.end() && next->first < value.offset + value.bytes) other = next->second;
      if (other < 0 && next != region.begin()) {
        const Value& before = s.values[std::prev(next)->second];
        if (before.offset + before.bytes > value.offset) other = std::prev(next)->second;
      }
      if (other >= 0 && value.takes_over != other)
        problems.push_back(fmt::format("{} and {} share bytes and are both alive at #{} {}", value.label,
                                       s.values[other].label, i, describe(s, s.actions[i])));
      region[value.offset] = v;
      ends[value.last + 1].push_back(v);
    }
  }
}

void check_reductions(const Schedule& s, Problems& problems) {
  std::map<int, int> last_writer, reductions;
  for (size_t i = 0; i < s.actions.size(); ++i)
    for (const Use& u : s.actions[i].uses) {
      if (s.values[u.value].kind != ValueKind::gradient_slot) continue;
      if (s.actions[i].kind == ActionKind::reduce_gradient) {
        if (!last_writer.count(u.value))
          problems.push_back(fmt::format("#{} {} reduces {} before its gradient is made", i, describe(s, s.actions[i]),
                                         s.values[u.value].label));
        ++reductions[u.value];
      } else {
        if (reductions[u.value] > 0)
          problems.push_back(fmt::format("#{} {} adds to {} after it was reduced", i, describe(s, s.actions[i]),
                                         s.values[u.value].label));
        last_writer[u.value] = static_cast<int>(i);
      }
    }
  for (const auto& [value, count] : reductions)
    if (count > 1)
      problems.push_back(fmt::format("{} is reduced {} times; the rule is once", s.values[value].label, count));
  for (const auto& [value, writer] : last_writer)
    if (reductions[value] == 0) problems.push_back(fmt::format("{} is never reduced", s.values[value].label));
  // Only the first reduction of a group's gradient in a step starts afresh.
  std::map<int, int> seen;
  for (size_t i = 0; i < s.actions.size(); ++i) {
    const Action& a = s.actions[i];
    if (a.kind != ActionKind::reduce_gradient) continue;
    const bool first = seen[a.owner]++ == 0;
    if (first == a.accumulate)
      problems.push_back(fmt::format("#{} {} {} the step's gradient; the first reduction starts it, the others add", i,
                                     describe(s, a), a.accumulate ? "adds to" : "overwrites"));
  }
}

}  // namespace

std::vector<std::string> validate_list(const Schedule& schedule, const Arena& arena) {
  Problems problems;
  check_completion(schedule, problems);
  check_order(schedule, problems);
  check_bytes(schedule, arena, problems);
  check_reductions(schedule, problems);
  return problems;
}

std::vector<std::string> validate_ranks(const std::vector<RankProgram>& programs, const Arena& arena) {
  Problems problems;
  std::vector<const Schedule*> checked;
  for (size_t r = 0; r < programs.size(); ++r) {
    if (std::find(checked.begin(), checked.end(), programs[r].schedule) != checked.end()) continue;
    checked.push_back(programs[r].schedule);
    for (const std::string& p : validate_list(*programs[r].schedule, arena))
      problems.push_back(fmt::format("rank {}: {}", r, p));
  }
  if (auto stall = run_queue_model(programs)) {
    problems.push_back("the ranks would wait for each other for ever:");
    for (const std::string& line : stall->lines) problems.push_back("  " + line);
  }
  return problems;
}

}  // namespace trireme::schedule
