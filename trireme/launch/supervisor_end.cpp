// The part of supervisor.h that ends processes, and does not wait for ever for their end.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/base/process.h"
#include "trireme/base/text.h"
#include "trireme/launch/process_look.h"
#include "trireme/launch/supervisor.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kBeforeTheBeginning = 2s;  // what ranks that have nothing to save have to end together
constexpr auto kEndOfTheKilled = 10s;     // whose end does not come waits in the kernel
constexpr auto kEndOfOrphans = 2s;

}  // namespace

// Whether ranks that are to stop have nothing to lose.
bool Supervisor::ends_unbegun() const {
  if (stop_signal_ == 0 || kill_sent_ || !is_alone()) return false;
  return num_started_ < options_.num_ranks || (options_.tells_begin && !all_begun());
}

// What ranks do when they are asked in the middle of the start takes as long as the start. They need not.
void Supervisor::end_what_has_not_begun() {
  if (!ends_unbegun() || !any_alive() || Clock::now() < stop_asked_at_ + kBeforeTheBeginning) return;
  ended_unbegun_ = true;
  kill_ranks();
}

// A process that waits in the kernel, for a disk that does not answer, ends when that does: nobody can wait for it.
void Supervisor::abandon_stuck_ranks() {
  if (!killed_at_ || Clock::now() < *killed_at_ + kEndOfTheKilled) return;
  for (auto& rank : ranks_) {
    if (!rank.alive()) continue;
    say(fmt::format("rank {} (pid {}) was killed {} ago and has not ended: it stays", rank.outcome.global_rank,
                    rank.outcome.pid, base::human_duration(Clock::now() - *killed_at_)));
    on_end(rank, SIGKILL, 0);
  }
}

void Supervisor::kill_ranks() {
  kill_sent_ = true;
  if (!killed_at_) killed_at_ = Clock::now();
  for (const auto& rank : ranks_) {
    if (rank.alive()) kill(-rank.outcome.pid, SIGKILL);
  }
}

// Ends what the ranks started and left: every process below us but the guardian and children from before. What may not
// be killed, or does not end of it because it waits in the kernel, is named and left.
void Supervisor::kill_orphans() {
  std::vector<ProcessEntry> table(kMaxProcesses);
  const auto end = Clock::now() + kEndOfOrphans;
  for (;;) {
    const std::span<ProcessEntry> running(table.data(), list_processes(table));
    for (auto& entry : running) {
      entry.selected = entry.parent == getpid() && entry.pid != guardian_.pid() && !process_.had_child(entry.pid);
    }
    select_descendants(running);
    if (kill_selected(running) == 0) break;
    if (Clock::now() >= end) {
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
    const bool may_not = kill(static_cast<pid_t>(ids[i].pid), 0) != 0 && errno == EPERM;
    say(fmt::format("process {}, which a rank has started and left, stays: {}", ids[i].pid,
                    may_not ? "this user may not end it" : "it was killed and " + describe(looks[i])));
  }
}

}  // namespace trireme::launch
