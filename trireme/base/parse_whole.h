// Parses a text that is one whole number: "12", or "ff" to base 16.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace trireme::base {

/// The number in `text`; nothing if `text` holds anything else, or if the number does not fit.
template <typename Number>
std::optional<Number> parse_whole(std::string_view text, int base = 10) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

}  // namespace trireme::base
