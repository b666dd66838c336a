// The memory of a process, split into private and shared memory. The ranks of one host map the same segments and files,
// so a sum of resident sizes would count these once for each rank.
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::observe {

struct MemoryUsage {
  int64_t private_bytes = 0;  ///< resident pages that nobody else maps
  int64_t shared_bytes = 0;  ///< resident pages mapped by others too; counted in full for each of them
  int64_t pss_bytes = 0;  ///< private plus a fair share of the shared: adds up over processes
  int64_t rss_bytes() const { return private_bytes + shared_bytes; }
};

/// From /proc/<pid>/smaps_rollup; pid 0 is the calling process. Empty if the kernel does not tell (another user's
/// process, a process that has ended, no /proc).
/// Cost      walks the page tables: about 0.1 ms per 100 MiB; not for every step of a fast loop
std::optional<MemoryUsage> read_memory_usage(int pid = 0);

struct PageFaults {
  int64_t minor = 0;  ///< page was in memory already, or fresh and zero
  int64_t major = 0;  ///< page was read from disk
};

/// Faults of the calling process since its start (getrusage).
PageFaults page_faults();

}  // namespace trireme::observe
