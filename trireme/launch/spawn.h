// Starts one rank by fork and exec: the part between the two, where almost nothing is allowed.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace trireme::launch {

struct SpawnRequest {
  std::string executable;
  std::vector<std::string> arguments;    ///< argv, the program's name first
  std::vector<std::string> environment;  ///< "NAME=value", all of it
  int stdin_fd = -1;                     ///< -1: /dev/null
  int stdout_fd = 1;
  int stderr_fd = 2;
  std::vector<int> kept_fds;      ///< stay open under their numbers; every other descriptor is closed
  int error_fd = -1;              ///< one of kept_fds: gets a ReportKind::exec_failed if exec fails
  std::vector<int> cpus;          ///< logical CPUs to stay on; empty: as the launcher
  sigset_t signal_mask;           ///< the launcher's own, before it blocked anything
};

/// Starts the process in a process group of its own, bound to die with the calling thread (PR_SET_PDEATHSIG).
///
/// Call it from a thread that outlives the rank: the kernel takes that thread's end for the launcher's.
/// Errors    Error if fork fails; a failing exec is reported on `error_fd` and ends the child with 127
pid_t spawn_rank(const SpawnRequest& request);

/// A descriptor that becomes readable when `pid`, a child, ends; -1 where the kernel has none (before 5.3).
int open_pidfd(pid_t pid);

/// Closes every descriptor from `first` up. Async-signal-safe.
void close_descriptors_from(int first);

}  // namespace trireme::launch
