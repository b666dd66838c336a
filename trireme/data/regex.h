// The regular expressions of tokenizer files, over UTF-8: what pre-tokenizers and normalizers are written in. An engine
// of our own, because its classes must be those of Unicode 16.0 (unicode_classes.h) and a file's expression must not
// run away with the program: every search has a budget of steps. Backtracking, leftmost, first alternative wins, as
// Oniguruma and Rust's fancy-regex do it.
//
// Knows: characters, ., classes with ranges, nesting and &&, \p{category}, \s \d \w \h and their complements, groups
// (plain, named, (?:), (?i:), atomic), (?i), alternatives, greedy, lazy and possessive repetition, look-ahead,
// look-behind of fixed length, ^ $ \A \z \Z \b \B. Everything else is refused by name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::data {

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

  /// Calls `take` for each match that does not overlap the one before, empty ones included.
  ///
  /// Cost      about 10 ns a piece of text for the known patterns; at most 2000 steps a byte and 10,000
  /// Errors    UsageError when the budget is spent: the expression takes more than linear time on this text
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

  const std::string& pattern() const { return pattern_; }

 private:
  static int64_t budget_for(std::string_view text) { return 10'000 + 2000 * static_cast<int64_t>(text.size()); }
  static size_t next_character(std::string_view text, size_t at);
  bool find(std::string_view text, size_t from, int64_t& budget, Match& match) const;

  std::string pattern_;
  std::unique_ptr<RegexProgram> program_;
};

}  // namespace trireme::data
