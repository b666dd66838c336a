#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "trireme/plan/step_plan.h"

namespace trireme::plan {

MemoryReport memory_report(const StepPlan& plan) {
  const schedule::Schedule& s = plan.train();
  const int peak = schedule::peak_action(s);
  MemoryReport report;
  report.total_bytes = plan.arena.total();
  report.private_bytes = plan.arena.private_bytes();
  report.host_shared_bytes = plan.arena.host_shared_bytes();
  report.peak_action = schedule::describe(s, s.actions[peak]);
  std::vector<int64_t> by_cause(schedule::kNumCauses, 0);
  for (const schedule::Value& v : s.values)
    if (v.persistent || (v.first <= peak && peak <= v.last && v.first >= 0)) {
      // A value that takes over another's bytes counts once, for the one before it.
      if (v.takes_over >= 0 && s.values[v.takes_over].last >= peak) continue;
      by_cause[static_cast<int>(v.cause)] +=
          (v.bytes + schedule::kValueAlignment - 1) / schedule::kValueAlignment * schedule::kValueAlignment;
    }
  int64_t sum = 0;
  for (int c = 0; c < schedule::kNumCauses; ++c) {
    report.rows.push_back({schedule::name_of(static_cast<schedule::Cause>(c)), by_cause[c]});
    sum += by_cause[c];
  }
  report.rows.emplace_back("placement and other lists", report.total_bytes - sum);
  std::array<int64_t, schedule::kNumMemories> bound{};
  for (const schedule::Schedule& list : plan.schedules)
    for (const auto& live : schedule::live_bytes(list))
      for (int m = 0; m < schedule::kNumMemories; ++m) bound[m] = std::max(bound[m], live[m]);
  report.lower_bound_bytes = std::accumulate(bound.begin(), bound.end(), int64_t{0});
  return report;
}

int64_t host_bytes(const StepPlan& plan, int64_t ranks, bool shared_memory) {
  const auto copies = [&](const std::vector<int>& group) {
    const bool here = std::ranges::all_of(group, [&](int rank) { return rank < ranks; });
    return shared_memory && here ? ranks / static_cast<int64_t>(group.size()) : ranks;
  };
  return ranks * plan.arena.private_bytes() +
         copies(plan.groups.gather) * plan.arena.of(schedule::Memory::host_shared) +
         copies(plan.groups.reduce) * plan.arena.of(schedule::Memory::host_reduced);
}

std::string render_memory(const MemoryReport& report) {
  const double mib = 1 << 20;
  int64_t largest = 1;
  for (const MemoryRow& row : report.rows) largest = std::max(largest, row.bytes);
  std::string out = fmt::format("{:<28}{:>14}\n", "", "MiB a rank");
  for (const MemoryRow& row : report.rows)
    if (row.bytes != 0)
      out += fmt::format("{:<28}{:>14.2f}  |{}\n", row.cause, double(row.bytes) / mib,
                         std::string(static_cast<size_t>(24 * std::max<int64_t>(0, row.bytes) / largest), '#'));
  out += fmt::format("{:<28}{:>14.2f}            at {}\n", "planned peak", double(report.total_bytes) / mib,
                     report.peak_action);
  out += fmt::format(
      "  {} bytes: {} private, {} once per host where ranks share memory; no placement needs less than {} ({:.2f} % "
      "below)\n",
      report.total_bytes, report.private_bytes, report.host_shared_bytes, report.lower_bound_bytes,
      100.0 * double(report.total_bytes - report.lower_bound_bytes) / double(report.total_bytes));
  return out;
}

}  // namespace trireme::plan
