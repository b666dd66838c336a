// What a process does that does not answer: its state as the kernel tells it, the processor time it takes, and the
// stack of its main thread. Nothing is asked of the process itself, so it may be stopped or stuck.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

struct ProcessLook {
  char state =
      0;  ///< of the main thread, as in /proc: 'R', 'S', 'D', 'T', 't'; 0: there is no such process, '?': nobody tells
  std::string waits_in = {};  ///< the kernel's function that it sleeps in, where the kernel says
  double cores = 0;  ///< processor time a second, all threads
  std::vector<std::string> stack = {};  ///< functions of the main thread, innermost first; empty where it cannot be had
};

/// Looks at processes that may be somebody else's by now: `start_ticks` is base::process_start_ticks of the one meant.
struct ProcessId {
  std::int64_t pid = 0;
  std::uint64_t start_ticks = 0;
};

/// Looks at all of `processes` for 0.2 s, in their order; without their stacks, which take longer.
std::vector<ProcessLook> look_at(const std::vector<ProcessId>& processes);

/// Functions on the stack of a process' main thread, innermost first, at most `most`: by libdw, which stops it for some
/// milliseconds. Empty where that is not allowed, and in builds without libdw.
std::vector<std::string> stack_of(std::int64_t pid, std::size_t most);

/// "is stopped, by a signal or a debugger", "sleeps in hrtimer_nanosleep", "computes (1.0 cores busy)", "has ended".
std::string describe(const ProcessLook& look);

/// "usleep < load_batch < train_one": the stack without what every program's ends with; long names are cut.
std::string describe_stack(const std::vector<std::string>& stack);

}  // namespace trireme::launch
