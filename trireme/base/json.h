// Parses JSON (checkpoint/read_budget.h has another parser, which also limits memory). A file from outside may be
// nested as deep as it is long, and functions on a value (copy, write, compare) recurse once a level: 300,000 brackets
// would crash the process. So the depth is checked in the text, before there is a value. The size of files is limited
// where they are read (base/files.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::base {

/// The most levels that are accepted. The deepest known file of a model or tokenizer has 8.
inline constexpr int kDeepestJson = 100;

/// The position at which the text opens its (`most` + 1)th level; nothing if it does not. The text need not be JSON.
std::optional<size_t> json_too_deep_at(std::string_view text, int most = kDeepestJson);

/// These functions are compiled once, in json.cpp, for nlohmann::json and nlohmann::ordered_json: the parser of one of
/// them takes the compiler seconds in every file that has it.
///
/// Errors    Json::parse_error
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text);

/// The same without exceptions: a discarded value (is_discarded()) if the text is not JSON or nests too deep.
template <typename Json = nlohmann::json>
Json parse_json_if_sound(std::string_view text);

/// The same for records of data, whose keys stand once: readers of JSON differ in which of two values they take.
///
/// Errors    json::parse_error, json::out_of_range (a number that no double holds), UsageError (a key twice)
nlohmann::json parse_json_of_unique_keys(std::string_view text);

/// The text of a value; bytes that are not UTF-8, as those of a path may be, become U+FFFD. `indent` as in Json::dump.
template <typename Json>
std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// What is wrong, in the words of an exception of JSON, without the library's own name and number of it.
std::string json_reason(const nlohmann::json::exception& error);

/// Whether `value` is a whole number that int64_t holds. Json::get makes another of one that is larger.
template <typename Json>
bool is_whole_number(const Json& value) {
  return value.is_number_integer() && !(value.is_number_unsigned() && value.template get<uint64_t>() > INT64_MAX);
}

/// The whole number that `value` is. Json::get would also take a floating-point number, as which a longer integer is
/// parsed, and convert it even if int64_t cannot hold it.
///
/// Errors    Json::type_error if it is not a whole number, or does not fit
template <typename Json>
int64_t whole_number(const Json& value);

}  // namespace trireme::base
