// What the kernel counts of this process and its machine: stops and reads that a step's own clock cannot explain.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>

namespace trireme::observe {

/// Of a page that is read from a disk, where the kernel does not time it.
inline constexpr double kSecondsAPage = 1e-4;

/// Since the process or the machine started, seconds unless it says otherwise; 0 where the kernel does not tell.
struct HostUsage {
  double throttled_seconds = 0;  ///< the control group's CPU quota stopped its processes (cpu.stat)
  double disk_seconds = 0;  ///< this process waited for a disk (delayacct_blkio_ticks)
  double stolen_seconds = 0;  ///< the machine is virtual, and its host did other work: mean of this thread's CPUs
  double busy_seconds = 0;  ///< the CPUs that this thread may use worked, for any program: their sum (/proc/stat)
  double own_seconds = 0;  ///< this process worked, on any CPU
  std::map<int, double> waited_seconds = {};  ///< each of its threads was ready to run, and had no CPU (schedstat)
  int64_t major_faults = 0;  ///< pages of this process that were read from a disk
  int64_t swapped_bytes = 0;  ///< of this process, at the moment
  double megahertz = 0;  ///< of the CPU that this thread runs on, at the moment (cpufreq)

  double longest_wait() const;
};

/// @param root   of the folders proc and sys, in tests
/// Cost      a few files of /proc and one for each thread, some 0.4 ms
HostUsage read_host_usage(const std::filesystem::path& root = "/");

/// What has been added since `before`; swapped_bytes and megahertz are those of now.
HostUsage operator-(const HostUsage& now, const HostUsage& before);

}  // namespace trireme::observe
