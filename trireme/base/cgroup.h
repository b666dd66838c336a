// What the kernel's control group says about this job: kills by the out-of-memory killer, limits on memory and CPU.
// A rank that dies of SIGKILL without a word is nearly always the out-of-memory killer's; only this counter proves it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::base {

/// The folder where `controller`'s files for a process lie ("" stands for cgroup v2), from the texts of
/// /proc/self/cgroup and /proc/self/mountinfo; empty when it is not mounted.
std::string cgroup_folder(std::string_view self_cgroup, std::string_view mountinfo, std::string_view controller);

class Cgroup {
 public:
  static Cgroup of_this_process();

  /// Folders of the v2 hierarchy and of v1's memory and cpu controllers; empty where absent.
  Cgroup(std::string unified, std::string memory, std::string cpu)
      : unified_(std::move(unified)), memory_(std::move(memory)), cpu_(std::move(cpu)) {}

  /// Processes of this group that the out-of-memory killer ended so far; empty when it cannot be read.
  std::optional<std::uint64_t> oom_kills() const;

  /// Bytes this group may use; empty when unlimited or unreadable.
  std::optional<std::uint64_t> memory_limit_bytes() const;

  /// Bytes that its limit, and those of the groups around it, leave: what is charged counts but for cached files, which
  /// the kernel gives back. Empty when nothing is limited.
  std::optional<std::int64_t> memory_left_bytes() const;

  /// CPUs' worth of time this group may use (1.5 means one and a half); empty when unlimited.
  std::optional<double> cpu_quota() const;

 private:
  std::string unified_, memory_, cpu_;
};

}  // namespace trireme::base
