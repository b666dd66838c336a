#include "trireme/launch/machines/host_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::launch {
namespace {
// The slots that the filter names of each host; an empty set means all of them.
using Filter = std::map<std::string, std::set<int>>;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

[[noreturn]] void refuse(std::string_view setting, std::string_view text, const std::string& why) {
  throw UsageError(fmt::format("error: {} '{}': {}", setting, text, why));
}

Filter parse(std::string_view setting, std::string_view text) {
  Filter filter;
  for (const std::string& part : split(text, '@')) {
    const size_t colon = part.find(':');
    std::set<int> slots;
    if (colon != std::string::npos)
      for (const std::string& word : split(std::string_view(part).substr(colon + 1), ',')) {
        int slot = -1;
        const char* end = word.data() + word.size();
        const auto [stop, error] = std::from_chars(word.data(), end, slot);
        if (error != std::errc() || stop != end || slot < 0)
          refuse(setting, text,
                 fmt::format("'{}' is no slot; write host-a@host-b:0,2, where slots count from 0", word));
        slots.insert(slot);
      }
    const std::string name = part.substr(0, colon);
    if (name.empty()) refuse(setting, text, "a host's name is empty; write host-a@host-b:0,2");
    if (!filter.emplace(name, slots).second) refuse(setting, text, fmt::format("it names {} twice", name));
  }
  return filter;
}

// DeepSpeed writes hosts as their file does; a user before the name may be left out.
std::string bare(const std::string& name) { return name.substr(name.find('@') + 1); }

std::vector<int> slots_of(const HostRanks& host) {
  std::vector<int> slots(static_cast<size_t>(host.ranks));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}
}  // namespace

std::vector<HostRanks> filter_hosts(const std::vector<HostRanks>& hosts, std::string_view include,
                                    std::string_view exclude) {
  if (include.empty() && exclude.empty()) return hosts;
  if (!include.empty() && !exclude.empty())
    throw UsageError("error: launch.include and launch.exclude contradict each other; say one of them");
  const bool keeps = !include.empty();
  const std::string_view setting = keeps ? "launch.include" : "launch.exclude", text = keeps ? include : exclude;
  Filter filter = parse(setting, text);
  std::vector<HostRanks> kept;
  for (HostRanks host : hosts) {
    const auto found = filter.find(bare(host.name));
    if (found == filter.end()) {
      if (!keeps) kept.push_back(host);
      continue;
    }
    const std::set<int> named = found->second;
    filter.erase(found);
    if (named.empty()) {
      if (keeps) kept.push_back(host);
      continue;
    }
    if (*named.rbegin() >= host.ranks)
      refuse(setting, text,
             fmt::format("{} has {}, so its slots are 0 to {}", host.name, base::plural(host.ranks, "slot"),
                         host.ranks - 1));
    host.slots = slots_of(host);
    std::erase_if(host.slots, [&](int slot) { return named.contains(slot) != keeps; });
    host.ranks = static_cast<int>(host.slots.size());
    if (host.ranks > 0) kept.push_back(host);
  }
  if (!filter.empty()) refuse(setting, text, fmt::format("{} is not in the list of machines", filter.begin()->first));
  if (kept.empty()) refuse(setting, text, "no machine remains");
  return kept;
}

}  // namespace trireme::launch
