#include "trireme/checkpoint/read_budget.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/json.h"

namespace trireme::checkpoint {

void ReadBudget::take(int64_t bytes) {
  if (bytes > left_)
    throw CheckpointError(
        fmt::format("{} asks for more memory than its own size and 64 MiB: it is damaged or malicious", path_), path_);
  left_ -= bytes;
}

nlohmann::json parse_json(std::string_view text, int max_depth, std::string_view what, ReadBudget& budget) {
  using nlohmann::json;
  using Event = json::parse_event_t;
  constexpr int64_t kValueBytes = 64, kKeyBytes = 192;  // a vector's item while it grows; two nodes of a tree
  const auto fail = [&](const std::string& problem, const std::string& key = "") {
    throw CheckpointError(fmt::format("{} is not {}: {}", budget.path(), what, problem), budget.path(), key);
  };
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Event event, json& parsed) {
    if (depth > max_depth) fail("it nests too deeply");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      budget.take(kKeyBytes + 2 * std::ssize(key));
      if (!keys.back().insert(key).second) fail(fmt::format("it names '{}' twice", key), key);
    } else {
      budget.take(kValueBytes);
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) {
    fail(fmt::format("it is not JSON ({})", base::json_reason(error)));
  }
  return {};
}

}  // namespace trireme::checkpoint
