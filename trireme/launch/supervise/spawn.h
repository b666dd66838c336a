// Starts one rank by fork and exec.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "trireme/base/files.h"

namespace trireme::launch {

/// A pipe whose ends are closed on exec.
struct Pipe {
  /// `read_flags`: O_NONBLOCK or 0, for the read end. Errors    Error if no descriptor is left
  explicit Pipe(int read_flags = 0);
  base::FileDescriptor read_end, write_end;
};

struct SpawnRequest {
  std::string executable;
  std::vector<std::string> arguments;    ///< argv, the program's name first
  std::vector<std::string> environment;  ///< "NAME=value", all of it
  int stdin_fd = -1;                     ///< -1: /dev/null
  int stdout_fd = 1;
  int stderr_fd = 2;
  std::vector<int> kept_fds;      ///< stay open with the same numbers; every other descriptor is closed
  int error_fd = -1;              ///< one of kept_fds: gets a ReportKind::exec_failed if exec fails
  std::vector<int> cpus;          ///< logical CPUs to run on; empty: the launcher's
  sigset_t signal_mask;           ///< the launcher's mask before it blocked anything
};

/// Starts the process in its own process group. The process dies with the calling thread (PR_SET_PDEATHSIG), so call
/// it from a thread that outlives the rank.
/// Errors    Error if fork fails; if exec fails, that is reported on `error_fd` and the child exits with 127
pid_t spawn_rank(const SpawnRequest& request);

/// A descriptor that becomes readable when the child `pid` ends; -1 if the kernel has no pidfds (before 5.3).
int open_pidfd(pid_t pid);

/// Closes every descriptor from `first` up. Async-signal-safe.
void close_descriptors_from(int first);

}  // namespace trireme::launch
