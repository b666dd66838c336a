#include "trireme/launch/kubernetes.h"

#include <fmt/format.h>

#include "trireme/launch/environment_number.h"

namespace trireme::launch {

std::optional<int> pod_index(const EnvironmentLookup& lookup) {
  const char* text = lookup("JOB_COMPLETION_INDEX");
  if (text == nullptr) return std::nullopt;
  return parse_number("JOB_COMPLETION_INDEX", text, 0, kMaxRanks);
}

std::string first_pod(const std::string& own_name, int index) {
  const std::string ending = fmt::format("-{}", index);
  const size_t dot = own_name.find('.');
  if (dot == std::string::npos || dot + 1 == own_name.size()) return {};
  const std::string host = own_name.substr(0, dot);
  if (host.size() <= ending.size() || !host.ends_with(ending)) return {};
  return fmt::format("{}-0{}", host.substr(0, host.size() - ending.size()), own_name.substr(dot));
}

}  // namespace trireme::launch
