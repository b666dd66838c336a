#include "trireme/observe/memory_usage.h"

#include <sys/resource.h>

#include <charconv>
#include <string>
#include <string_view>

#include "trireme/base/files.h"

namespace trireme::observe {
namespace {
// Bytes of the line "<key>:   123 kB"; 0 if the kernel has no such line.
int64_t value_of(std::string_view text, std::string_view key) {
  std::string start = "\n";
  start.append(key).append(":");
  size_t at = text.find(start);
  if (at == std::string_view::npos) return 0;
  at = text.find_first_not_of(' ', at + start.size());
  if (at == std::string_view::npos) return 0;
  int64_t kib = 0;
  std::from_chars(text.data() + at, text.data() + text.size(), kib);
  return kib * 1024;
}
}  // namespace

std::optional<MemoryUsage> read_memory_usage(int pid) {
  const std::string who = pid == 0 ? "self" : std::to_string(pid);
  std::string text;
  try {
    text = base::read_file("/proc/" + who + "/smaps_rollup");
  } catch (const base::FileError&) {
    return std::nullopt;
  }
  if (text.find("\nRss:") == std::string::npos) return std::nullopt;
  MemoryUsage usage;
  for (const char* key : {"Private_Clean", "Private_Dirty", "Private_Hugetlb"})
    usage.private_bytes += value_of(text, key);
  for (const char* key : {"Shared_Clean", "Shared_Dirty", "Shared_Hugetlb"}) usage.shared_bytes += value_of(text, key);
  usage.pss_bytes = value_of(text, "Pss");
  return usage;
}

PageFaults page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {usage.ru_minflt, usage.ru_majflt};
}

}  // namespace trireme::observe
