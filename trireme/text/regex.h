// Regular expressions over UTF-8, as pre-tokenizers and normalizers in tokenizer files use them. The engine is our own
// for two reasons: its classes must be those of Unicode 16.0 (unicode_classes.h), and an expression from a file must
// not run for ever, so every search has a budget of steps. The engine backtracks. The leftmost match and the first
// alternative win, as in Oniguruma and Rust's fancy-regex.
//
// Supported: characters, ., classes with ranges, nesting and &&, \p{category}, \s \d \w \h and their complements,
// groups (plain, named, (?:), (?i:), atomic), (?i), alternatives, greedy, lazy and possessive repetition, look-ahead,
// look-behind of fixed length, ^ $ \A \z \Z \b \B. Everything else is refused by name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::text {

struct RegexProgram;

/// Whose meaning an expression has where meanings differ.
enum class RegexSyntax {
  oniguruma,  ///< of tokenizers: ^ and $ are the ends of lines, classes nest
  /// of Python's re, for answers of models: ^ and $ are the ends of the text, $ also the place before its last line
  /// end; (?s), (?m); no nesting. A search has more steps, about a second
  python,
};

class Regex {
 public:
  struct Match {
    size_t begin, end;  ///< bytes of the text
  };

  /// Errors    UsageError naming the construct and its place: not understood, too long (4096 bytes), too deep
  explicit Regex(std::string_view pattern, RegexSyntax syntax = RegexSyntax::oniguruma);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  const std::string& pattern() const { return pattern_; }

  /// Calls `take` for each match, empty ones included. Matches do not overlap.
  ///
  /// Cost      about 10 ns a piece of text for the known patterns; at most 10,000 steps plus 2000 for each byte of text
  /// Errors    UsageError if the budget is used up: the expression takes more than linear time on this text
  template <typename Take>
  void for_each_match(std::string_view text, Take take) const {
    Match match{};
    int64_t budget = budget_for(text);
    for (size_t at = 0; find(text, at, budget, match);) {
      take(match);
      at = match.end > match.begin ? match.end : next_character(text, match.end);
      if (at > text.size()) return;
    }
  }

  /// Of each match its text, then those of its groups: a group that took no part is empty. Only of Python's
  /// expressions. Errors    as above
  std::vector<std::vector<std::string>> all_groups(std::string_view text) const;

 private:
  int64_t budget_for(std::string_view text) const {
    return (syntax_ == RegexSyntax::python ? 100'000'000 : 10'000) + 2000 * static_cast<int64_t>(text.size());
  }
  static size_t next_character(std::string_view text, size_t at);
  bool find(std::string_view text, size_t from, int64_t& budget, Match& match,
            std::vector<std::string>* groups = nullptr, bool must_advance = false) const;

  std::string pattern_;
  RegexSyntax syntax_;
  std::unique_ptr<RegexProgram> program_;
};

}  // namespace trireme::text
