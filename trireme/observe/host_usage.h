// What the kernel counts of this process and its machine: stops and reads that a step's own clock cannot explain.
#pragma once

#include <cstdint>

namespace trireme::observe {

/// Since the process or the machine started; 0 where the kernel does not tell.
struct HostUsage {
  double throttled_seconds = 0;  ///< the control group's CPU quota stopped its processes (cpu.stat)
  double disk_seconds = 0;  ///< this process waited for a disk (delayacct_blkio_ticks)
  double stolen_seconds = 0;  ///< of all cores: the machine is virtual, and its host did other work (/proc/stat)
  int64_t major_faults = 0;  ///< pages of this process that were read from a disk
  int64_t swapped_bytes = 0;  ///< of this process, at the moment
};

/// Cost      a few files of /proc, some 0.1 ms
HostUsage read_host_usage();

/// What has been added since `before`; swapped_bytes is that of now.
HostUsage operator-(const HostUsage& now, const HostUsage& before);

}  // namespace trireme::observe
