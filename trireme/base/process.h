// Who a process is: its machine, and its start, which tells a process id that is used again apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::base {

/// This machine by name and boot: equal for processes that see the same process ids, as far as that can be told.
std::string this_host();

/// Ticks since boot at which a process started; 0 when it is gone or a zombie; nothing where the system does not tell
/// (no descriptor is left, no right to look). Allocates nothing.
std::optional<uint64_t> process_start_ticks(int64_t pid);

}  // namespace trireme::base
