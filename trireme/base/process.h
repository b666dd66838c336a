// What identifies a process: its machine, and its start time, because process ids are reused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::base {

/// This machine by name and boot: equal for processes that see the same process ids, as far as that can be told.
std::string this_host();

/// Ticks since boot at which a process started; 0 if it is gone or a zombie; nothing if the system does not tell (no
/// descriptor is left, no right to look, /proc is missing or hides the process). Allocates nothing.
std::optional<uint64_t> process_start_ticks(int64_t pid);

/// Whether the process `pid` that started at `start_ticks` (0: unknown) has ended. False if the system does not tell: a
/// live peer that is taken for dead ends the job.
bool is_gone(int64_t pid, uint64_t start_ticks);

/// Why no process or thread could be started, for errno `code`; EAGAIN is a limit on their number.
std::string why_not_started(int code);

/// Why there was no descriptor left, for errno `code`; EMFILE and ENFILE are limits on their number.
std::string why_no_descriptor(int code);

/// From now on no core dump of this process, or of what it starts, is written to a file or handed to a program: its
/// memory holds a secret. It stays "dumpable" (prctl): shared memory and the diagnosis of hangs need peers and
/// debuggers that can read it. The hard limit stays too: `prlimit --pid PID --core=unlimited` allows dumps again.
void allow_no_core_dumps();

}  // namespace trireme::base
