#include "trireme/launch/supervise/guardian.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "trireme/base/child_process.h"
#include "trireme/base/error.h"
#include "trireme/base/process.h"
#include "trireme/launch/supervise/processes.h"
#include "trireme/launch/supervise/spawn.h"

namespace trireme::launch {
namespace {
constexpr std::size_t kMaxGuardedRanks = 4096;
constexpr int kMaxSweeps = 1000;         // of 10 ms
constexpr int kEmptySweepsToBeSure = 3;  // a process may be between fork and its first entry in /proc

// For the guardian process only, which does not allocate while it waits and kills.
std::array<ProcessEntry, kMaxProcesses> table;
std::array<pid_t, kMaxGuardedRanks> rank_groups;

/// Whether nothing of the job runs any more, as far as this look can tell.
bool sweep(std::string_view marker, std::span<const pid_t> groups) {
  const auto count = list_processes(table);
  if (!count) return false;
  const std::span<ProcessEntry> running(table.data(), *count);
  for (auto& entry : running)
    entry.selected = entry.pid != getpid() && (std::find(groups.begin(), groups.end(), entry.group) != groups.end() ||
                                               carries_marker(entry.pid, marker));
  select_descendants(running);
  return kill_selected(running) == 0;
}

// Waits for the launcher's end, then kills until no process of the job is left. Only async-signal-safe calls.
void guard(int read_end, std::string_view marker) {
  std::size_t num_groups = 0;
  for (;;) {
    pid_t announced;
    const long got = read(read_end, &announced, sizeof announced);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<long>(sizeof announced)) break;
    if (announced < 0) {  // this group is empty
      pid_t* const end = std::remove(rank_groups.data(), rank_groups.data() + num_groups, -announced);
      num_groups = static_cast<std::size_t>(end - rank_groups.data());
    } else if (num_groups < rank_groups.size()) {
      rank_groups[num_groups++] = announced;
    }
  }
  const timespec pause{0, 10'000'000};
  for (int i = 0, empty = 0; i < kMaxSweeps && empty < kEmptySweepsToBeSure; ++i) {
    empty = sweep(marker, {rank_groups.data(), num_groups}) ? empty + 1 : 0;
    nanosleep(&pause, nullptr);
  }
}

// Its own session, no terminal, and only the pipe: so nobody who reads the launcher's output waits for the guardian.
[[noreturn]] void become_guardian(int read_end, std::string_view marker, const std::function<void()>& at_end) {
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  prctl(PR_SET_NAME, "trireme-guard");
  if (chdir("/") != 0) _exit(1);
  dup2(read_end, 0);
  close_descriptors_from(1);
  guard(0, marker);
  try {
    if (at_end) at_end();  // may allocate: glibc's malloc works behind a fork
  } catch (...) {
    _exit(1);
  }
  _exit(0);
}
}  // namespace

Guardian::Guardian(std::string marker, std::function<void()> at_end)
    : marker_(std::move(marker)), at_end_(std::move(at_end)) {
  start();
}

Guardian::~Guardian() { stop(); }

void Guardian::start() {
  Pipe pipe;
  pid_ = fork();
  if (pid_ < 0)
    throw Error(fmt::format("launcher: cannot start the guardian process: {}", base::why_not_started(errno)));
  if (pid_ == 0) become_guardian(pipe.read_end.get(), marker_, at_end_);
  write_end_ = std::move(pipe.write_end);
  pidfd_ = base::FileDescriptor(open_pidfd(pid_));
  for (const pid_t rank : watched_) announce(rank);
}

void Guardian::stop() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    base::wait_for_end(pid_);
  }
  pidfd_ = {};
  write_end_ = {};
  pid_ = -1;
}

// A guardian that was just killed cannot read this; restart() tells the next one.
void Guardian::announce(pid_t group) const {
  [[maybe_unused]] const long written = write(write_end_.get(), &group, sizeof group);
}

void Guardian::watch(pid_t rank_pid) {
  watched_.push_back(rank_pid);
  announce(rank_pid);
}

// While a group has a process, the kernel does not use its id again.
void Guardian::forget_empty_groups() {
  std::erase_if(ended_, [&](pid_t group) {
    if (kill(-group, 0) == 0 || errno != ESRCH) return false;
    std::erase(watched_, group);
    announce(-group);
    return true;
  });
}

void Guardian::restart() {
  stop();
  start();
}

}  // namespace trireme::launch
