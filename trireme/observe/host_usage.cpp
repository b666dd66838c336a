#include "trireme/observe/host_usage.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "trireme/base/cgroup.h"
#include "trireme/observe/memory_usage.h"

namespace trireme::observe {
namespace {

double seconds_a_tick() { return 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK)); }

/// The number behind `label` at the beginning of a line; 0 without one.
double number_of(const std::string& path, const std::string& label) {
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
double field_of_stat(int index) {
  std::ifstream file("/proc/self/stat");
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

double stolen() {
  constexpr int kSteal = 8;
  std::ifstream file("/proc/stat");
  std::string label;
  file >> label;
  double ticks = 0;
  for (int i = 1; i <= kSteal; ++i)
    if (!(file >> ticks)) return 0;
  return ticks * seconds_a_tick();
}

}  // namespace

HostUsage read_host_usage() {
  constexpr int kDiskTicks = 42;
  constexpr double kKibibyte = 1024;
  return {.throttled_seconds = base::Cgroup::of_this_process().throttled_seconds(),
          .disk_seconds = field_of_stat(kDiskTicks) * seconds_a_tick(),
          .stolen_seconds = stolen(),
          .major_faults = page_faults().major,
          .swapped_bytes = static_cast<int64_t>(kKibibyte * number_of("/proc/self/status", "VmSwap:"))};
}

HostUsage operator-(const HostUsage& now, const HostUsage& before) {
  return {.throttled_seconds = now.throttled_seconds - before.throttled_seconds,
          .disk_seconds = now.disk_seconds - before.disk_seconds,
          .stolen_seconds = now.stolen_seconds - before.stolen_seconds,
          .major_faults = now.major_faults - before.major_faults,
          .swapped_bytes = now.swapped_bytes};
}

}  // namespace trireme::observe
