#include "trireme/base/cgroup.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

namespace trireme::base {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The number after `key` in lines of "key number".
std::optional<std::uint64_t> number_after(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  std::string word;
  std::uint64_t value = 0;
  while (lines >> word >> value)
    if (word == key) return value;
  return std::nullopt;
}

std::optional<double> first_number(const std::string& text) {
  std::istringstream in(text);
  double value = 0;
  return in >> value ? std::optional(value) : std::nullopt;  // "max" is no number: unlimited
}

bool lists(std::string_view comma_separated, std::string_view name) {
  std::istringstream in{std::string(comma_separated)};
  for (std::string part; std::getline(in, part, ',');)
    if (part == name) return true;
  return false;
}

constexpr double kUnlimited = 1e18;  // v1 writes "unlimited" as a number near 2^63

// File names of a group's limit and use, and the rows of memory.stat that count cached files.
struct MemoryFiles {
  const char *limit, *used, *inactive, *active;
};
constexpr MemoryFiles kUnifiedMemory = {"/memory.max", "/memory.current", "inactive_file", "active_file"};
constexpr MemoryFiles kVersionOneMemory = {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file",
                                           "total_active_file"};

std::optional<std::int64_t> left_in(const std::string& folder, const MemoryFiles& files) {
  const auto limit = first_number(read_text(folder + files.limit));
  const auto used = first_number(read_text(folder + files.used));
  if (!limit || *limit > kUnlimited || !used) return std::nullopt;
  const std::string stat = read_text(folder + "/memory.stat");
  const auto cached = number_after(stat, files.inactive).value_or(0) + number_after(stat, files.active).value_or(0);
  return static_cast<std::int64_t>(std::max(0.0, *limit - std::max(0.0, *used - static_cast<double>(cached))));
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// The text of a group's file; nothing if there is no such group or file.
std::optional<std::string> file_of(const std::string& folder, const char* name) {
  if (folder.empty() || !exists(folder + name)) return std::nullopt;
  return read_text(folder + name);
}

// The least that a group or one around it allows: schedulers limit a job, and its steps and tasks are groups inside,
// without a limit of their own. `file`: of a group that has limits of this kind.
template <class Limit>
auto least_of(const std::string& deepest, const char* file, const Limit& limit_in) {
  decltype(limit_in("")) least;
  for (std::filesystem::path folder = deepest; folder.has_relative_path(); folder = folder.parent_path())
    if (const auto limit = exists(folder.string() + file) ? limit_in(folder.string()) : std::nullopt)
      least = std::min(*limit, least.value_or(*limit));
  return least;
}

std::optional<double> quota_of(const std::string& quota_and_period) {
  std::istringstream in(quota_and_period);
  double quota = 0, period = 0;
  return in >> quota >> period && quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

}  // namespace

std::string cgroup_folder(std::string_view self_cgroup, std::string_view mountinfo, std::string_view controller) {
  const bool unified = controller.empty();
  std::string group_path;  // "4:memory:/docker/1234", for v2 "0::/user.slice"
  std::istringstream groups{std::string(self_cgroup)};
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (unified ? controllers.empty() : lists(controllers, controller)) group_path = line.substr(second + 1);
  }
  if (group_path.empty()) return "";

  std::istringstream mounts{std::string(mountinfo)};
  for (std::string line; std::getline(mounts, line);) {
    // "35 31 0:32 <root> <mount point> <options> - cgroup cgroup rw,memory"
    std::istringstream words(line);
    std::string skip, root, mount_point, type, options;
    words >> skip >> skip >> skip >> root >> mount_point;
    while (words >> skip && skip != "-") {
    }
    words >> type >> skip >> options;
    if (unified ? type != "cgroup2" : type != "cgroup" || !lists(options, controller)) continue;
    // In a container the mount's root is the container's group, and the path may repeat it.
    const bool is_inside = group_path.starts_with(root) && (group_path + "/")[root.size()] == '/';
    if (root != "/" && is_inside) group_path.erase(0, root.size());
    if (group_path == "/") group_path.clear();
    return mount_point + group_path;
  }
  return "";
}

Cgroup Cgroup::of_this_process() {
  const std::string groups = read_text("/proc/self/cgroup"), mounts = read_text("/proc/self/mountinfo");
  return Cgroup(cgroup_folder(groups, mounts, ""), cgroup_folder(groups, mounts, "memory"),
                cgroup_folder(groups, mounts, "cpu"));
}

std::optional<std::uint64_t> Cgroup::oom_kills() const {
  if (const auto events = file_of(unified_, "/memory.events")) return number_after(*events, "oom_kill");
  return number_after(file_of(memory_, "/memory.oom_control").value_or(""), "oom_kill");
}

std::optional<std::uint64_t> Cgroup::memory_limit_bytes() const {
  std::optional<std::uint64_t> least;
  for (const auto& [deepest, files] : {std::pair(unified_, kUnifiedMemory), std::pair(memory_, kVersionOneMemory)}) {
    const auto limit = least_of(deepest, files.limit, [&](const std::string& folder) {
      const auto number = first_number(read_text(folder + files.limit));
      return number && *number <= kUnlimited ? std::optional(static_cast<std::uint64_t>(*number)) : std::nullopt;
    });
    if (limit) least = std::min(*limit, least.value_or(*limit));
  }
  return least;
}

std::optional<std::int64_t> Cgroup::memory_left_bytes() const {
  std::optional<std::int64_t> least;
  for (const auto& [deepest, files] : {std::pair(unified_, kUnifiedMemory), std::pair(memory_, kVersionOneMemory)}) {
    const auto left = least_of(deepest, files.used, [&](const std::string& folder) { return left_in(folder, files); });
    if (left) least = std::min(*left, least.value_or(*left));
  }
  return least;
}

std::optional<double> Cgroup::cpu_quota() const {
  const auto quota = least_of(unified_, "/cpu.max",
                              [](const std::string& folder) { return quota_of(read_text(folder + "/cpu.max")); });
  const auto older = least_of(cpu_, "/cpu.cfs_quota_us", [](const std::string& folder) {
    return quota_of(read_text(folder + "/cpu.cfs_quota_us") + " " + read_text(folder + "/cpu.cfs_period_us"));
  });
  return quota && older ? std::min(*quota, *older) : quota ? quota : older;
}

double Cgroup::throttled_seconds() const {
  // v2 counts microseconds, v1 nanoseconds.
  std::istringstream in(file_of(unified_, "/cpu.stat").value_or("") + "\n" + file_of(cpu_, "/cpu.stat").value_or(""));
  double number = 0;
  for (std::string key; in >> key >> number;) {
    if (key == "throttled_usec") return 1e-6 * number;
    if (key == "throttled_time") return 1e-9 * number;
  }
  return 0;
}

AvailableMemory available_memory() {
  AvailableMemory memory{.bytes = std::numeric_limits<int64_t>::max()};
  std::ifstream info("/proc/meminfo");
  int64_t kib = 0;
  for (std::string key, unit; info >> key >> kib; std::getline(info, unit))
    if (key == "MemAvailable:") memory.bytes = kib << 10;
  const auto left = Cgroup::of_this_process().memory_left_bytes();
  if (left && *left < memory.bytes) memory = {.bytes = *left, .is_limited = true};
  return memory;
}

}  // namespace trireme::base
