#include "trireme/base/log.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>

namespace trireme::base {
namespace {

constexpr std::string_view kErrorWord = "error: ";

std::mutex prefix_mutex;
std::string& shared_prefix() {
  static std::string prefix;
  return prefix;
}

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;  // a closed stderr must not end the run
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

void set_log_prefix(std::string prefix) {
  const std::lock_guard lock(prefix_mutex);
  shared_prefix() = std::move(prefix);
}

std::string log_line(LogLevel level, std::string_view prefix, std::string_view text, bool colour) {
  std::string line;
  if (!prefix.empty()) line += fmt::format("{}: ", prefix);
  if (level != LogLevel::info) {
    const std::string_view word = level == LogLevel::warn ? "warn  " : kErrorWord;
    const std::string_view start = level == LogLevel::warn ? "\x1b[33m" : "\x1b[31m";
    line += colour ? fmt::format("{}{}\x1b[0m", start, word) : std::string(word);
  }
  return line + std::string(text) + "\n";
}

void write_log(LogLevel level, std::string_view text) {
  std::string prefix;
  {
    const std::lock_guard lock(prefix_mutex);
    prefix = shared_prefix();
  }
  write_all(log_line(level, prefix, text, terminal_has_colour(STDERR_FILENO)));
}

std::string error_text(std::string_view message) {
  return message.starts_with(kErrorWord) ? std::string(message) : fmt::format("{}{}", kErrorWord, message);
}

void report_error(const std::exception& error) {
  const std::string_view text = error.what();
  write_log(text.starts_with(kErrorWord) ? LogLevel::info : LogLevel::error, text);
}

bool terminal_has_colour(int descriptor) {
  if (::isatty(descriptor) == 0) return false;
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return (no_colour == nullptr || *no_colour == '\0') && terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace trireme::base
