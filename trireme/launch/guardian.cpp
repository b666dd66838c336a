#include "trireme/launch/guardian.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/launch/processes.h"
#include "trireme/launch/spawn.h"

namespace trireme::launch {
namespace {

constexpr std::size_t kMaxGuardedRanks = 4096;
constexpr int kMaxSweeps = 1000;         // of 10 ms
constexpr int kEmptySweepsToBeSure = 3;  // a process may be between fork and its first entry in /proc

// Used in the guardian's process only: after the fork it must not allocate.
std::array<ProcessEntry, kMaxProcesses> table;
std::array<pid_t, kMaxGuardedRanks> rank_groups;

std::size_t sweep(std::string_view marker, std::span<const pid_t> groups) {
  const std::span<ProcessEntry> running(table.data(), list_processes(table));
  for (auto& entry : running) {
    entry.selected = entry.pid != getpid() && (std::find(groups.begin(), groups.end(), entry.group) != groups.end() ||
                                               carries_marker(entry.pid, marker));
  }
  select_descendants(running);
  return kill_selected(running);
}

// Waits for the launcher's end, then kills until nothing of the job is left. Only async-signal-safe calls.
[[noreturn]] void guard(int read_end, std::string_view marker) {
  std::size_t num_groups = 0;
  for (;;) {
    pid_t announced;
    const long got = read(read_end, &announced, sizeof announced);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<long>(sizeof announced)) break;
    if (announced < 0) {  // its group is empty
      pid_t* const end = std::remove(rank_groups.data(), rank_groups.data() + num_groups, -announced);
      num_groups = static_cast<std::size_t>(end - rank_groups.data());
    } else if (num_groups < rank_groups.size()) {
      rank_groups[num_groups++] = announced;
    }
  }
  const timespec pause{0, 10'000'000};
  for (int i = 0, empty = 0; i < kMaxSweeps && empty < kEmptySweepsToBeSure; ++i) {
    empty = sweep(marker, {rank_groups.data(), num_groups}) == 0 ? empty + 1 : 0;
    nanosleep(&pause, nullptr);
  }
  _exit(0);
}

// Own session, no terminal, no descriptor but the pipe: whoever waits for the launcher's output does not wait for us.
[[noreturn]] void become_guardian(int read_end, std::string_view marker) {
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  prctl(PR_SET_NAME, "trireme-guard");
  if (chdir("/") != 0) _exit(1);
  dup2(read_end, 0);
  close_descriptors_from(1);
  guard(0, marker);
}

}  // namespace

Guardian::Guardian(std::string marker) : marker_(std::move(marker)) { start(); }

Guardian::~Guardian() { stop(); }

void Guardian::start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw Error(fmt::format("launcher: no pipe for the guardian: {}", std::strerror(errno)));
  pid_ = fork();
  if (pid_ < 0) throw Error(fmt::format("launcher: cannot start the guardian process: {}", std::strerror(errno)));
  if (pid_ == 0) {
    close(ends[1]);
    become_guardian(ends[0], marker_);
  }
  close(ends[0]);
  write_end_ = ends[1];
  pidfd_ = open_pidfd(pid_);
  for (const pid_t rank : watched_) watch(rank);
}

void Guardian::stop() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (pidfd_ >= 0) close(pidfd_);
  if (write_end_ >= 0) close(write_end_);
  pid_ = pidfd_ = write_end_ = -1;
}

void Guardian::watch(pid_t rank_pid) {
  if (std::find(watched_.begin(), watched_.end(), rank_pid) == watched_.end()) watched_.push_back(rank_pid);
  // A guardian that was just killed cannot read: its end is seen by pidfd, and restart() tells the next one.
  [[maybe_unused]] const long written = write(write_end_, &rank_pid, sizeof rank_pid);
}

// A group that still has a process keeps its id from being used again.
void Guardian::forget_empty_groups() {
  std::erase_if(ended_, [&](pid_t group) {
    if (kill(-group, 0) == 0 || errno != ESRCH) return false;
    std::erase(watched_, group);
    const pid_t announced = -group;
    [[maybe_unused]] const long written = write(write_end_, &announced, sizeof announced);
    return true;
  });
}

void Guardian::restart() {
  stop();
  start();
}

}  // namespace trireme::launch
