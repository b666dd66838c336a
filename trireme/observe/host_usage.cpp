#include "trireme/observe/host_usage.h"

#include <fmt/format.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/cgroup.h"
#include "trireme/base/usable_cpus.h"
#include "trireme/observe/memory_usage.h"

namespace trireme::observe {
namespace {

namespace fs = std::filesystem;

double seconds_a_tick() { return 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK)); }

/// The number behind `label` at the beginning of a line; 0 without one.
double number_of(const fs::path& path, const std::string& label) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(label)) {
      double number = 0;
      std::istringstream(line.substr(label.size())) >> number;
      return number;
    }
  return 0;
}

/// Field `index`, counted from 1, of the first line, behind the program's name in parentheses.
double field_of_stat(const fs::path& path, int index) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return 0;
  const size_t end = line.rfind(')');  // of field 2
  if (end == std::string::npos) return 0;
  std::istringstream fields(line.substr(end + 1));
  std::string field;
  for (int i = 3; i <= index; ++i)
    if (!(fields >> field)) return 0;
  return std::stod(field);
}

/// Adds what /proc/stat says of these CPUs: "cpu3 user nice system idle iowait irq softirq steal".
void read_cpus(const fs::path& stat, const std::vector<int>& cpus, HostUsage& usage) {
  std::ifstream file(stat);
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    std::istringstream fields(line.substr(3));
    int cpu = -1;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    if (line[3] == ' ' || !(fields >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal))
      continue;
    if (!std::ranges::binary_search(cpus, cpu)) continue;
    usage.busy_seconds += seconds_a_tick() * (user + nice + system + irq + softirq);
    usage.idle_seconds += seconds_a_tick() * (idle + iowait);
    usage.idle_for_disk_seconds += seconds_a_tick() * iowait;
    usage.stolen_seconds += seconds_a_tick() * steal / double(cpus.size());
  }
}

std::map<int, double> waits_of_threads(const fs::path& tasks) {
  constexpr double kNanosecond = 1e-9;
  std::map<int, double> waits;
  std::error_code failure;
  for (fs::directory_iterator entry(tasks, failure), end; !failure && entry != end; entry.increment(failure)) {
    double on_cpu = 0, waited = 0;
    if (std::ifstream(entry->path() / "schedstat") >> on_cpu >> waited)
      waits[std::atoi(entry->path().filename().c_str())] = kNanosecond * waited;
  }
  return waits;
}

double own_cpu_seconds() {
  constexpr double kNanosecond = 1e-9;
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + kNanosecond * double(time.tv_nsec);
}

double megahertz_of(const fs::path& cpus, int cpu) {
  constexpr double kKilohertz = 1e-3;
  double kilohertz = 0;
  std::ifstream(cpus / fmt::format("cpu{}/cpufreq/scaling_cur_freq", cpu)) >> kilohertz;
  return kKilohertz * kilohertz;
}

}  // namespace

double HostUsage::longest_wait() const {
  double longest = 0;
  for (const auto& [thread, seconds] : waited_seconds) longest = std::max(longest, seconds);
  return longest;
}

double HostUsage::waited_for_disk() const { return std::max(disk_seconds, idle_for_disk_seconds); }

HostUsage read_host_usage(const fs::path& root, const std::vector<int>* cpus) {
  constexpr int kDiskTicks = 42;
  constexpr double kKibibyte = 1024;
  const fs::path self = root / "proc/self";
  HostUsage usage{.throttled_seconds = base::Cgroup::of_this_process().throttled_seconds(),
                  .disk_seconds = field_of_stat(self / "stat", kDiskTicks) * seconds_a_tick(),
                  .own_seconds = own_cpu_seconds(),
                  .waited_seconds = waits_of_threads(self / "task"),
                  .major_faults = page_faults().major,
                  .swapped_bytes = static_cast<int64_t>(kKibibyte * number_of(self / "status", "VmSwap:")),
                  .megahertz = megahertz_of(root / "sys/devices/system/cpu", sched_getcpu())};
  read_cpus(root / "proc/stat", cpus != nullptr ? *cpus : base::usable_cpus(), usage);
  return usage;
}

HostUsage operator-(const HostUsage& now, const HostUsage& before) {
  HostUsage added = now;
  added.throttled_seconds -= before.throttled_seconds;
  added.disk_seconds -= before.disk_seconds;
  added.idle_for_disk_seconds -= before.idle_for_disk_seconds;
  added.idle_seconds -= before.idle_seconds;
  added.stolen_seconds -= before.stolen_seconds;
  added.busy_seconds -= before.busy_seconds;
  added.own_seconds -= before.own_seconds;
  added.major_faults -= before.major_faults;
  for (auto& [thread, seconds] : added.waited_seconds)
    if (const auto earlier = before.waited_seconds.find(thread); earlier != before.waited_seconds.end())
      seconds -= earlier->second;
  return added;
}

}  // namespace trireme::observe
