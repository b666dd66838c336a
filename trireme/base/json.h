// The one way to parse JSON. A file that somebody else wrote may nest as deep as it is long, and what walks such a
// value (copying, writing, comparing) calls itself once a level: 300,000 brackets end the process. So depth is counted
// in the text, before there is a value. Files are limited in size where they are read (base/files.h).
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::base {

/// The deepest file of any model or tokenizer that is known nests 8 levels.
inline constexpr int kDeepestJson = 100;

/// Where the text opens its (`most` + 1)th level, whether or not it is JSON otherwise. One pass.
std::optional<size_t> json_too_deep_at(std::string_view text, int most = kDeepestJson);

/// Errors    Json::parse_error
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text) {
  if (const auto at = json_too_deep_at(text))
    throw Json::parse_error::create(101, *at, "it nests more than " + std::to_string(kDeepestJson) + " levels deep",
                                    nullptr);
  return Json::parse(text);
}

/// The same; a discarded value (is_discarded(), no object, no array) where the text is not JSON or nests too deep.
template <typename Json = nlohmann::json>
Json parse_json_if_sound(std::string_view text) {
  if (json_too_deep_at(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace trireme::base
