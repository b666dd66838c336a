// The part of supervisor.h that ends processes, and waits for their end only for a limited time.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "trireme/base/process.h"
#include "trireme/base/text.h"
#include "trireme/launch/hang/process_look.h"
#include "trireme/launch/supervise/supervisor.h"

namespace trireme::launch {
namespace {
using namespace std::chrono_literals;

constexpr auto kBeforeTheBeginning = 2s;  // the grace of ranks that have nothing to save
constexpr auto kEndOfTheKilled = 10s;     // a killed process that takes longer waits in the kernel
constexpr auto kEndOfOrphans = 2s;
}  // namespace

// Whether no step can have begun, so that ranks have nothing to save.
bool Supervisor::is_unbegun() const {
  return num_started_ < options_.num_ranks || (options_.tells_begin && !all_begun());
}

// Whether ranks that have been asked to stop are not waited for. With other machines they are: these may be waiting for
// them, and hear of the request from them.
bool Supervisor::ends_unbegun() const { return stop_signal_ != 0 && !kill_sent_ && is_alone() && is_unbegun(); }

// Ranks that are still starting would stop only at the end of their start. So they are killed.
void Supervisor::end_what_has_not_begun() {
  if (!ends_unbegun() || !any_alive() || Clock::now() < stop_asked_at_ + kBeforeTheBeginning) return;
  ended_unbegun_ = true;
  kill_ranks();
}

// A process that waits in the kernel, for a disk that does not answer, cannot end before the disk answers.
void Supervisor::abandon_stuck_ranks() {
  if (!killed_at_ || Clock::now() < *killed_at_ + kEndOfTheKilled) return;
  for (auto& rank : ranks_) {
    if (!rank.alive()) continue;
    say(fmt::format("rank {} (pid {}) was killed {} ago and has not ended; the launcher no longer waits for it",
                    rank.outcome.global_rank, rank.outcome.pid, base::human_duration(Clock::now() - *killed_at_)));
    stay_.push_back(rank.outcome.pid);
    on_end(rank, SIGKILL, 0);
  }
}

void Supervisor::kill_ranks() {
  kill_sent_ = true;
  if (!killed_at_) killed_at_ = Clock::now();
  for (const auto& rank : ranks_)
    if (rank.alive()) kill(-rank.outcome.pid, SIGKILL);
}

// Ends processes that the ranks started and left behind: all descendants of the launcher except the guardian and
// children from before the job. Processes that may not be killed, or do not end, are named and left.
void Supervisor::kill_orphans() {
  std::vector<ProcessEntry> table(kMaxProcesses);
  const auto end = Clock::now() + kEndOfOrphans;
  for (;;) {
    const auto count = list_processes(table);
    const bool late = Clock::now() >= end;
    if (!count && late) say("the processes of this machine cannot be listed, so what the ranks left behind still runs");
    if (!count && late) break;
    const std::span<ProcessEntry> running(table.data(), count.value_or(0));
    for (auto& entry : running)
      entry.selected = entry.parent == getpid() && entry.pid != guardian_.pid() && !process_.had_child(entry.pid);
    select_descendants(running);
    for (auto& entry : running)
      if (std::ranges::find(stay_, entry.pid) != stay_.end()) entry.selected = false;
    if (kill_selected(running) == 0 && count) break;
    if (late) {
      name_what_stays(running);
      break;
    }
    usleep(1000);
    reap();
  }
  reap();
}

void Supervisor::name_what_stays(std::span<const ProcessEntry> table) {
  std::vector<ProcessId> ids;
  for (const auto& entry : table)
    if (entry.selected && entry.pid != getpid())
      ids.push_back({entry.pid, base::process_start_ticks(entry.pid).value_or(0)});
  const auto looks = look_at(ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    stay_.push_back(static_cast<pid_t>(ids[i].pid));
    const bool may_not = kill(static_cast<pid_t>(ids[i].pid), 0) != 0 && errno == EPERM;
    say(fmt::format("process {}, which a rank has left behind, still runs: {}", ids[i].pid,
                    may_not ? "this user may not end it" : "it was killed and " + describe(looks[i])));
  }
}

}  // namespace trireme::launch
