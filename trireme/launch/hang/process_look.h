// Looks at a process from outside: its state according to the kernel, its processor time, and the stack of its main
// thread. The process need not cooperate, so it may be stopped or stuck.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::launch {

struct ProcessLook {
  char state = 0;  ///< of the main thread, as in /proc: 'R', 'S', 'D', 'T', 't'; 0: no such process, '?': unknown
  std::string waits_in = {};  ///< the kernel function in which it sleeps, if the kernel says
  double cores = 0;           ///< processor time per second, of all threads
  std::vector<std::string> stack = {};  ///< functions of the main thread, innermost first; empty if unknown
};

/// A process. `start_ticks` (base::process_start_ticks; 0: unknown) tells it from a later process with the same id.
struct ProcessId {
  std::int64_t pid = 0;
  std::uint64_t start_ticks = 0;
};

/// Looks at all of `processes` for 0.2 s. The results are in their order, without stacks, which would take longer.
std::vector<ProcessLook> look_at(const std::vector<ProcessId>& processes);

/// Whether the process's main thread waits in the kernel for a disk or a file system; no signal can end such a wait.
bool waits_in_kernel(std::int64_t pid);

/// Functions on the stack of a process's main thread, innermost first, at most `most`. libdw stops the thread for some
/// milliseconds. Empty if that is not allowed, if the thread cannot be stopped (waits_in_kernel), and in builds without
/// libdw.
std::vector<std::string> stack_of(std::int64_t pid, std::size_t most);

/// "is stopped, by a signal or a debugger", "sleeps in hrtimer_nanosleep", "computes (1.0 cores busy)", "has ended".
std::string describe(const ProcessLook& look);

/// "usleep < load_batch < train_one": the stack without main and its callers; long names are cut.
std::string describe_stack(const std::vector<std::string>& stack);

}  // namespace trireme::launch
