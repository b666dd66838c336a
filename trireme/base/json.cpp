#include "trireme/base/json.h"

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
Json parse_json(std::string_view text) {
  if (const auto at = json_too_deep_at(text))
    throw Json::parse_error::create(101, *at, "it nests more than " + std::to_string(kDeepestJson) + " levels deep",
                                    nullptr);
  return Json::parse(text);
}

template <typename Json>
Json parse_json_if_sound(std::string_view text) {
  if (json_too_deep_at(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
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
