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

namespace trireme::text {

struct RegexProgram;

class Regex {
 public:
  struct Match {
    size_t begin, end;  ///< bytes of the text
  };

  /// Errors    UsageError naming the construct and its place: not understood, too long (4096 bytes), too deep
  explicit Regex(std::string_view pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

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

 private:
  static int64_t budget_for(std::string_view text) { return 10'000 + 2000 * static_cast<int64_t>(text.size()); }
  static size_t next_character(std::string_view text, size_t at);
  bool find(std::string_view text, size_t from, int64_t& budget, Match& match) const;

  std::string pattern_;
  std::unique_ptr<RegexProgram> program_;
};

}  // namespace trireme::text
