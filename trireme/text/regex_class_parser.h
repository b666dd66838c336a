// Reads characters, escapes and classes of a regular expression.
#pragma once

#include <string_view>

#include "trireme/text/regex_set.h"

namespace trireme::text {

/// A pattern and how far it has been read.
class PatternScanner {
 public:
  explicit PatternScanner(std::string_view pattern, bool is_python = false)
      : pattern_(pattern), is_python_(is_python) {}

  /// In a class, [ and && are themselves; \s has the four separators of ASCII, and \w is is_word_of_python.
  bool is_python() const { return is_python_; }
  bool done() const { return at_ >= pattern_.size(); }
  bool sees(char c) const { return !done() && pattern_[at_] == c; }
  /// Reads `text` if it comes next.
  bool take(std::string_view text);
  /// Reads one character; fails at the end.
  char32_t character();
  /// Reads "{2}", "{2,}", "{,3}" or "{2,3}" if it comes next; max -1 means any number.
  bool bounds(int& min, int& max, bool& is_one_number);
  /// Reads up to the next `end` and skips it. Returns what came before.
  std::string_view until(char end);

  /// Throws UsageError "<what> at byte N".
  [[noreturn]] void fail(std::string_view what) const;

 private:
  std::string_view pattern_;
  bool is_python_;
  size_t at_ = 0;
};

/// Reads one character, escape or [class]. Errors    UsageError
CharacterSet parse_character_class(PatternScanner& scan, int depth = 0);

}  // namespace trireme::text
