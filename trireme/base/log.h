// Lines to stderr: notes and warnings, one line per fact. Each line is one write(2), so that lines of several
// ranks never mix. A rank's process sets a prefix once; colour appears on a terminal only and says nothing
// that the words do not.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace trireme::base {

/// Prefix of every later line of this process, for instance "rank 1"; empty for none.
void set_log_prefix(std::string prefix);

enum class LogLevel { info, warn, error };

/// The line as it is written: "rank 1: warn  text" (level word for warnings and errors only).
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

/// Prints what an exception says after "error: ", once: texts that carry the word already (refused settings
/// come several at a time) are printed as they are.
void report_error(const std::exception& error);

/// True when stderr (or stdout) is a terminal that shows colour: NO_COLOR unset, TERM not "dumb".
bool terminal_has_colour(int descriptor);

}  // namespace trireme::base
