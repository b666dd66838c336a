// Lines on stderr: notes and warnings, one line per fact. Each line is one write(2), so that lines of several ranks
// never mix. A rank's process sets a prefix once. Colour appears only on a terminal, and repeats what the words say.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace trireme::base {

/// Sets the prefix of all later lines of this process, for instance "rank 1"; empty for none.
void set_log_prefix(std::string prefix);

enum class LogLevel { info, warn, error };

/// The line as it is written: "rank 1: warn  text" (only warnings and errors have a word for the level).
std::string log_line(LogLevel level, std::string_view prefix, std::string_view text, bool colour);

void write_log(LogLevel level, std::string_view text);

template <typename... Arguments>
void info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write_log(LogLevel::info, fmt::format(format, std::forward<Arguments>(arguments)...));
}

template <typename... Arguments>
void warn(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write_log(LogLevel::warn, fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// A message after "error: ". One that already begins with "error: " stays as it is. (That of an exception about
/// several settings has one paragraph for each, and every paragraph begins with "error: ".)
std::string error_text(std::string_view message);

/// Prints an exception's error_text().
void report_error(const std::exception& error);

/// True when `descriptor` is a terminal that shows colour: NO_COLOR is unset, and TERM is not "dumb".
bool terminal_has_colour(int descriptor);

}  // namespace trireme::base
