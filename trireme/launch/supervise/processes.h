// The table of running processes, and how to kill some of them: those that a dead launcher has left.
//
// Everything here is async-signal-safe and allocates nothing, because the guardian uses it after a fork.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace trireme::launch {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  bool selected = false;
};

constexpr std::size_t kMaxProcesses = 65536;  ///< of a machine; further ones are not seen

/// Whether processes count that have ended and have not been waited for.
enum class Zombies { no, too };

/// Fills `table` with the running processes, ordered by id, and returns their number. Nothing if they cannot be
/// listed, which does not mean that none runs.
std::optional<std::size_t> list_processes(std::span<ProcessEntry> table, Zombies zombies = Zombies::no);

/// Whether `pid` was started with the variable `marker` ("NAME=value") in its environment.
bool carries_marker(pid_t pid, std::string_view marker);

/// Selects every process whose parent is selected, until nothing changes. `table` is ordered by id.
void select_descendants(std::span<ProcessEntry> table);

/// Sends SIGKILL to the selected processes other than this one and returns their number.
std::size_t kill_selected(std::span<const ProcessEntry> table);

}  // namespace trireme::launch
