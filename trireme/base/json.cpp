#include "trireme/base/json.h"

#include <functional>
#include <set>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::base {

std::optional<size_t> json_too_deep_at(std::string_view text, int most) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::nullopt;
}

template <typename Json>
void require_depth(std::string_view text) {
  if (const auto at = json_too_deep_at(text))
    throw Json::parse_error::create(101, *at, "it nests more than " + std::to_string(kDeepestJson) + " levels deep",
                                    nullptr);
}

template <typename Json>
Json parse_json(std::string_view text) {
  require_depth<Json>(text);
  return Json::parse(text);
}

template <typename Json>
Json parse_json_if_sound(std::string_view text) {
  if (json_too_deep_at(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

namespace {

using Event = nlohmann::json::parse_event_t;

// The keys of the objects that are open.
class KeyWatch {
 public:
  bool operator()(int /*depth*/, Event event, const nlohmann::json& parsed) {
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event == Event::key && !open_.back().insert(parsed.get_ref<const std::string&>()).second)
      throw UsageError("the key " + parsed.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                       " stands twice in one object; leave one out");
    return true;
  }

 private:
  std::vector<std::set<std::string>> open_;
};

}  // namespace

nlohmann::json parse_json_of_unique_keys(std::string_view text) {
  require_depth<nlohmann::json>(text);
  KeyWatch watch;
  return nlohmann::json::parse(text, std::ref(watch));
}

std::string json_reason(const nlohmann::json::exception& error) {
  const std::string_view all = error.what();  // "[json.exception.parse_error.101] parse error at line 3, column 5: ..."
  const size_t end = all.find("] ");
  return std::string(all.starts_with("[json.exception.") && end != all.npos ? all.substr(end + 2) : all);
}

template <typename Json>
int64_t whole_number(const Json& value) {
  if (!is_whole_number(value))
    throw Json::type_error::create(302, value.dump() + " is not a whole number of 64 bits", &value);
  return value.template get<int64_t>();
}

template nlohmann::json parse_json(std::string_view text);
template nlohmann::ordered_json parse_json(std::string_view text);
template nlohmann::json parse_json_if_sound(std::string_view text);
template nlohmann::ordered_json parse_json_if_sound(std::string_view text);
template int64_t whole_number(const nlohmann::json& value);
template int64_t whole_number(const nlohmann::ordered_json& value);

}  // namespace trireme::base
