#include "trireme/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace trireme::base {

namespace {

constexpr double kLargestCount = 9.0e18;  // below 2^63, so that the conversion is defined

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Drops underscores between digits; any other underscore is an error.
std::optional<std::string> without_grouping(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  if (!result.empty() && result[0] == '+') result.erase(0, 1);
  return result;
}

// The number that the whole text is, by std::from_chars.
template <typename Number>
std::optional<Number> all_of(std::string_view text) {
  const std::optional<std::string> plain = without_grouping(text);
  if (!plain) return std::nullopt;
  const char* end = plain->data() + plain->size();
  Number value = 0;
  const auto [stop, error] = std::from_chars(plain->data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

std::optional<int64_t> whole(double value) {
  if (!(std::abs(value) < kLargestCount) || value != std::floor(value)) return std::nullopt;
  return static_cast<int64_t>(value);
}

// Length of the leading number of `text`: digits, underscores, points, and an exponent that has digits.
size_t number_length(std::string_view text) {
  size_t i = 0;
  while (i < text.size() && (is_digit(text[i]) || text[i] == '.' || text[i] == '_')) ++i;
  size_t j = i;
  if (i > 0 && j < text.size() && (text[j] == 'e' || text[j] == 'E')) {
    ++j;
    if (j < text.size() && (text[j] == '+' || text[j] == '-')) ++j;
    if (j < text.size() && is_digit(text[j])) {
      while (j < text.size() && is_digit(text[j])) ++j;
      i = j;
    }
  }
  return i;
}

// Falling, as format_bytes tries them.
constexpr std::pair<const char*, int64_t> kByteUnits[] = {{"TiB", int64_t{1} << 40},
                                                          {"TB", 1'000'000'000'000},
                                                          {"GiB", int64_t{1} << 30},
                                                          {"GB", 1'000'000'000},
                                                          {"MiB", int64_t{1} << 20},
                                                          {"MB", 1'000'000},
                                                          {"KiB", int64_t{1} << 10},
                                                          {"KB", 1'000},
                                                          {"B", 1},
                                                          {"", 1}};

constexpr std::array<std::pair<const char*, int64_t>, 5> kTimeUnits = {
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}}};

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  const std::optional<double> value = all_of<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<int64_t> parse_count(std::string_view text) {
  if (const auto value = all_of<int64_t>(text)) return value;
  const std::optional<double> number = parse_number(text);  // "3e9", "1.5e3"
  return number ? whole(*number) : std::nullopt;
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  const size_t length = number_length(text);
  std::string_view rest = text.substr(length);
  while (!rest.empty() && rest[0] == ' ') rest.remove_prefix(1);
  const std::string unit = lower(rest);
  for (const auto& [name, bytes] : kByteUnits) {
    if (unit != lower(name)) continue;
    if (bytes == 1) return parse_count(text.substr(0, length));
    const std::optional<double> number = parse_number(text.substr(0, length));
    // 1.3 GiB are no whole number of bytes, and nobody means that.
    return number ? whole(std::round(*number * static_cast<double>(bytes))) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  if (text.empty()) return std::nullopt;
  double total_ms = 0;
  size_t next_unit = 0;  // units must fall: 1h30m, never 30m1h
  for (std::string_view rest = text; !rest.empty();) {
    const size_t length = number_length(rest);
    const std::optional<double> number = parse_number(rest.substr(0, length));
    if (!number) return std::nullopt;
    size_t end = length;
    while (end < rest.size() && rest[end] >= 'a' && rest[end] <= 'z') ++end;
    const std::string_view unit = rest.substr(length, end - length);
    if (unit.empty()) {
      if (rest.size() != text.size() || end != text.size()) return std::nullopt;
      total_ms = *number * 1000;
      break;
    }
    size_t found = next_unit;
    while (found < kTimeUnits.size() && unit != kTimeUnits[found].first) ++found;
    if (found == kTimeUnits.size()) return std::nullopt;
    total_ms += *number * static_cast<double>(kTimeUnits[found].second);
    next_unit = found + 1;
    rest = rest.substr(end);
  }
  if (!(total_ms < kLargestCount)) return std::nullopt;
  return std::chrono::milliseconds(std::llround(total_ms));
}

std::string format_bytes(int64_t bytes) {
  for (const auto& [name, size] : kByteUnits)
    if (size > 1 && bytes != 0 && bytes % size == 0 && bytes < (int64_t{1} << 50))
      return fmt::format("{}{}", bytes / size, name);
  return fmt::format("{}", bytes);
}

std::string format_duration(std::chrono::milliseconds duration) {
  int64_t rest = duration.count();
  if (rest == 0) return "0s";
  std::string result;
  if (rest % 1000 != 0) return fmt::format("{}ms", rest);
  for (const auto& [name, ms] : kTimeUnits) {
    if (rest >= ms) result += fmt::format("{}{}", rest / ms, name);
    rest %= ms;
  }
  return result;
}

std::string format_number(double number) {
  std::string text = fmt::format("{}", number);
  const size_t exponent = text.find('e');
  if (exponent == std::string::npos) return text;
  // fmt pads exponents to two digits: 6e-05 reads as 6e-5, 1e+20 as 1e20.
  std::string tail = text.substr(exponent + 1);
  const bool negative = tail[0] == '-';
  tail.erase(0, tail.find_first_of("123456789"));
  return text.substr(0, exponent + 1) + (negative ? "-" : "") + tail;
}

}  // namespace trireme::base
