// What the kernel's control group says about this job: kills by the out-of-memory killer, limits on memory and CPU. The
// out-of-memory killer is the usual reason why a rank dies of SIGKILL without a message; only its counter proves it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::base {

/// The folder with `controller`'s files for a process ("" means cgroup v2), from the texts of /proc/self/cgroup and
/// /proc/self/mountinfo; empty if the controller is not mounted.
std::string cgroup_folder(std::string_view self_cgroup, std::string_view mountinfo, std::string_view controller);

class Cgroup {
 public:
  static Cgroup of_this_process();

  /// Folders of the v2 hierarchy and of v1's memory and cpu controllers; empty if absent.
  Cgroup(std::string unified, std::string memory, std::string cpu)
      : unified_(std::move(unified)), memory_(std::move(memory)), cpu_(std::move(cpu)) {}

  /// Processes of this group that the out-of-memory killer has ended so far; empty if unreadable.
  std::optional<std::uint64_t> oom_kills() const;

  /// Bytes this group may use; empty if unlimited or unreadable.
  std::optional<std::uint64_t> memory_limit_bytes() const;

  /// Bytes left under the limits of this group and of the groups around it. Cached files do not count as used: the
  /// kernel frees them. Empty if nothing is limited.
  std::optional<std::int64_t> memory_left_bytes() const;

  /// CPUs' worth of time this group may use (1.5 means one and a half); empty if unlimited.
  std::optional<double> cpu_quota() const;

  /// Seconds for which that quota has stopped processes of this group so far; 0 if unreadable.
  double throttled_seconds() const;

 private:
  std::string unified_, memory_, cpu_;
};

struct AvailableMemory {
  int64_t bytes = 0;
  bool is_limited = false;  ///< by a control group: the machine has more
};

/// Memory that may still be used: what the machine has left, or less if control groups limit it. Cached files count as
/// available. Swap does not: training would be far too slow in it.
AvailableMemory available_memory();

}  // namespace trireme::base
