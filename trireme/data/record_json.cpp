#include "trireme/data/record_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/data/show.h"
#include "trireme/text/json_fields.h"
#include "trireme/text/not_json.h"

namespace trireme::data {
using nlohmann::json;

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
  json value;
  try {
    value = base::parse_json_of_unique_keys(text);
  } catch (const json::out_of_range&) {
    value = base::parse_json_of_unique_keys(without_huge_numbers(text).value_or(std::string(text)));
  }
  if (!value.is_object()) throw UsageError("this is not a JSON object");
  return value;
} catch (const UsageError& error) {
  throw UsageError(fmt::format("{}: {}", place, error.what()));
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
