// The table of running processes, and how to end parts of it: all that is left of a job when its launcher died.
//
// Everything here is async-signal-safe and allocates nothing, because the guardian runs it after a fork.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string_view>

namespace trireme::launch {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  bool selected = false;
};

constexpr std::size_t kMaxProcesses = 65536;  ///< of a machine; later ones in a larger table are not seen

/// Fills `table` with the running processes (no zombies) in the order of their ids and returns how many there are.
std::size_t list_processes(std::span<ProcessEntry> table);

/// Whether `pid` was started with the variable `marker` ("NAME=value") in its environment.
bool carries_marker(pid_t pid, std::string_view marker);

/// Selects every process whose parent is selected, until nothing changes. `table` is ordered by id.
void select_descendants(std::span<ProcessEntry> table);

/// Sends SIGKILL to the selected processes other than this one and returns how many there were.
std::size_t kill_selected(std::span<const ProcessEntry> table);

}  // namespace trireme::launch
