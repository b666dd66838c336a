// Reads and writes quantities as settings spell them: counts ("3e9", "4_096"), sizes ("16MiB", "5GB"), times ("30s",
// "1h30m"). The written form is the shortest that reads back as the same number; text.h rounds numbers for people. Text
// that cannot be read gives an empty optional: the caller knows the setting's name and says what is wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::base {

/// A whole number: "42", "-1", "4_096", "3e9", "1.5e3". Empty if it has a fraction or does not fit int64.
std::optional<int64_t> parse_count(std::string_view text);

/// A finite number: "1e-3", "0.95", "-2". Underscores may group digits.
std::optional<double> parse_number(std::string_view text);

/// Bytes: a count with an optional unit B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024) in
/// upper or lower case, with or without a blank before it. "1.3GiB" is rounded to whole bytes. Never negative.
std::optional<int64_t> parse_bytes(std::string_view text);

/// A time: numbers with units ms, s, m, h, d in falling order ("1h30m", "250ms"); a bare number is seconds.
/// Rounded to milliseconds; never negative.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

std::string format_bytes(int64_t bytes);  ///< "5GB", "16MiB", "12345": exact
std::string format_duration(std::chrono::milliseconds duration);  ///< "1h30m", "30s", "1500ms": exact
std::string format_number(double number);  ///< shortest that reads back: "0.1", "6e-5"

}  // namespace trireme::base
