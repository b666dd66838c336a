#include "trireme/data/record_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <set>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/data/show.h"
#include "trireme/text/json_fields.h"
#include "trireme/text/not_json.h"

namespace trireme::data {
namespace {

using nlohmann::json;

// Refuses keys that an object has twice.
class KeyWatch {
 public:
  explicit KeyWatch(const std::string& place) : place_(place) {}

  bool operator()(int /*depth*/, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open_.emplace_back();
    if (event == json::parse_event_t::object_end) open_.pop_back();
    if (event == json::parse_event_t::key && !open_.back().insert(parsed.get_ref<const std::string&>()).second)
      throw UsageError(fmt::format("{}: the key {:?} stands twice in one object; leave one out", place_,
                                   text::shown(parsed.get_ref<const std::string&>())));
    return true;
  }

 private:
  const std::string& place_;
  std::vector<std::set<std::string>> open_;
};

json parse(std::string_view text, const std::string& place) {
  KeyWatch watch(place);
  return json::parse(text, std::ref(watch));
}

}  // namespace

std::optional<std::string> without_huge_numbers(std::string_view text) {
  std::optional<std::string> changed;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      const size_t end = std::min(text.find_first_not_of("+-.0123456789eE", at), text.size());
      double value = 0;
      const auto [behind, error] = std::from_chars(text.data() + at, text.data() + end, value);
      if (error == std::errc::result_out_of_range && behind == text.data() + end) {
        if (!changed) changed = std::string(text);
        changed->replace(at, end - at, "0" + std::string(end - at - 1, ' '));
      }
      at = end - 1;
    }
  }
  return changed;
}

std::string not_a_record(std::string_view text, size_t byte) {
  const std::string why = text::why_not_json(text);
  if (why != "not JSON" || byte == 0) return "this is " + why;
  return fmt::format("this is not JSON (byte {} of the record)", byte);
}

json parse_record_json(std::string_view text, const std::string& place) try {
  if (const auto at = base::json_too_deep_at(text))
    throw UsageError(fmt::format("{}: {}: it nests more than {} levels deep", place, not_a_record(text, *at + 1),
                                 base::kDeepestJson));
  json value;
  try {
    value = parse(text, place);
  } catch (const json::out_of_range&) {
    value = parse(without_huge_numbers(text).value_or(std::string(text)), place);
  }
  if (!value.is_object()) throw UsageError(place + ": this is not a JSON object");
  return value;
} catch (const json::exception& error) {  // its text shows the input, whatever that is
  const auto* where = dynamic_cast<const json::parse_error*>(&error);
  throw UsageError(fmt::format("{}: {}", place, not_a_record(text, where == nullptr ? 0 : where->byte)));
}

template <typename Json>
std::string keys_of(const Json& record) {
  constexpr size_t kShown = 8;
  std::vector<std::string> names;
  for (const auto& [key, value] : record.items()) {
    if (names.size() == kShown) {
      names.emplace_back("...");
      break;
    }
    names.push_back(visible(text::shown(key)));
  }
  return names.empty() ? "no field" : base::join(names, ", ");
}

template std::string keys_of(const json& record);
template std::string keys_of(const nlohmann::ordered_json& record);

}  // namespace trireme::data
