// The part of supervisor.h that comes when a rank has waited for another in vain.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/process.h"
#include "trireme/launch/supervisor.h"

namespace trireme::launch {

// What that other one does has to be seen before it is ended.
void Supervisor::look_for_hang() {
  const bool timed_out =
      std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.outcome.timed_out; });
  if (looked_for_hang_ || !timed_out) return;
  looked_for_hang_ = true;
  if (!options_.out_dir.empty()) hang_ = launch::look_for_hang(base::flight_folder(options_.out_dir));
  if (!hang_) silent_ = describe_silent_ranks();
}

// Without recorders, and before ranks have met: what those do that have not given up.
std::string Supervisor::describe_silent_ranks() const {
  constexpr std::size_t kFrames = 24;
  std::vector<ProcessId> ids;
  std::vector<int> names;
  for (const auto& rank : ranks_) {
    if (!rank.alive() || rank.outcome.reported) continue;
    ids.push_back({rank.outcome.pid, base::process_start_ticks(rank.outcome.pid).value_or(0)});
    names.push_back(rank.outcome.global_rank);
  }
  const auto looks = look_at(ids);
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string stack = describe_stack(stack_of(ids[i].pid, kFrames));
    text += fmt::format("  rank {} (pid {}) {}{}{}\n", names[i], ids[i].pid, describe(looks[i]),
                        stack.empty() ? "" : "; its stack: ", stack);
  }
  return text;
}

}  // namespace trireme::launch
