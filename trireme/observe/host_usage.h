// What the kernel counts of this process and its machine: stops and reads that a step's own clock cannot explain.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <vector>

namespace trireme::observe {

/// Of a page that is read from a disk, where the kernel does not time it.
inline constexpr double kSecondsAPage = 1e-4;

/// Since the process or the machine started, seconds unless it says otherwise; 0 where the kernel does not tell.
struct HostUsage {
  double throttled_seconds = 0;  ///< the control group's CPU quota stopped its processes (cpu.stat)
  double disk_seconds = 0;  ///< this process waited for a disk (delayacct_blkio_ticks, which most kernels leave at 0)
  double idle_for_disk_seconds = 0;  ///< the CPUs had nothing to do but wait for reads and writes (iowait): their sum
  double stolen_seconds = 0;  ///< the machine is virtual, and its host did other work: mean of the CPUs
  double busy_seconds = 0;  ///< the CPUs worked, for any program: their sum (/proc/stat)
  double idle_seconds = 0;  ///< they did not, iowait included: their sum
  double own_seconds = 0;  ///< this process worked, on any CPU
  std::map<int, double> waited_seconds = {};  ///< each of its threads was ready to run, and had no CPU (schedstat)
  int64_t major_faults = 0;  ///< pages of this process that were read from a disk
  int64_t swapped_bytes = 0;  ///< of this process, at the moment
  double megahertz = 0;  ///< of the CPU that this thread runs on, at the moment (cpufreq)

  double longest_wait() const;
  /// The process waited for a disk, as far as either figure tells.
  double waited_for_disk() const;
};

/// @param root   of the folders proc and sys, in tests
/// @param cpus   in ascending order, of which the figures of CPUs are; null: base::usable_cpus()
/// Cost      a few files of /proc and one for each thread, some 0.4 ms
HostUsage read_host_usage(const std::filesystem::path& root = "/", const std::vector<int>* cpus = nullptr);

/// What has been added since `before`; swapped_bytes and megahertz are those of now.
HostUsage operator-(const HostUsage& now, const HostUsage& before);

}  // namespace trireme::observe
