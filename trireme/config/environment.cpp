#include "trireme/config/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "trireme/base/text.h"
#include "trireme/config/declaration.h"
#include "trireme/config/hints.h"

namespace trireme::config {

namespace {

constexpr std::string_view kPrefix = "TRIREME_";

// Between a launcher and its ranks, and in scripts of this project.
constexpr std::array<std::string_view, 13> kOfOurOwn = {
    "TRIREME_JOB_ID",    "TRIREME_RUN",         "TRIREME_RESTART_COUNT", "TRIREME_TOKEN_FD",   "TRIREME_STORE_FD",
    "TRIREME_REPORT_FD", "TRIREME_LAUNCHER_ID", "TRIREME_FLIGHT_FOLDER", "TRIREME_STARTED_NS", "TRIREME_HOST_ID",
    "TRIREME_LOCK_FD",   "TRIREME_OUT",         "TRIREME_SLOW"};

// A service that is called trireme-data puts these into every pod beside it.
bool is_of_kubernetes(std::string_view name) {
  return name.find("_SERVICE_HOST") != std::string_view::npos || name.find("_SERVICE_PORT") != std::string_view::npos ||
         name.find("_PORT_") != std::string_view::npos || name.ends_with("_PORT");
}

std::optional<std::string> nearest_name(std::string_view name) {
  std::optional<std::string> best;
  int best_distance = std::numeric_limits<int>::max();
  for (const std::string& key : all_keys()) {
    const std::string known = environment_name(key);
    const auto distance = distance_if_near(name, known, key);
    if (!distance || *distance >= best_distance) continue;
    best = known;
    best_distance = *distance;
  }
  return best;
}

bool begins_like_a_group(const std::string& name) {
  return std::any_of(groups().begin(), groups().end(), [&](const Group& group) {
    return !group.name.empty() && name.starts_with(environment_name(group.name) + "_");
  });
}

}  // namespace

std::vector<StrayVariable> stray_variables(std::span<const std::string> names) {
  std::vector<StrayVariable> found;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix) || std::find(kOfOurOwn.begin(), kOfOurOwn.end(), name) != kOfOurOwn.end()) continue;
    const auto near = nearest_name(name);
    if (near == name) continue;  // a setting
    if (near)
      found.push_back({name, fmt::format("the nearest is {}", *near)});
    else if (begins_like_a_group(name) && !is_of_kubernetes(name))
      found.push_back({name, fmt::format("unset {}, or name a setting of docs/settings.md", name)});
  }
  return found;
}

std::vector<std::string> own_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(kPrefix)) names.emplace_back(text.substr(0, text.find('=')));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace trireme::config
