#include "trireme/base/memory.h"

#include <fstream>
#include <limits>
#include <string>

#include "trireme/base/cgroup.h"

namespace trireme::base {

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
