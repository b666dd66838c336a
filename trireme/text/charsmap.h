// SentencePiece's compiled normaliser ("precompiled_charsmap"): a table of strings and their replacements. The blob is
// a double-array trie (darts-clone), followed by the replacements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::text {

class Charsmap {
 public:
  /// Errors    UsageError if the blob is cut off
  explicit Charsmap(std::string_view blob);

  struct Rule {
    size_t length;  ///< bytes of the text
    std::string_view replacement;
  };
  /// The rule for the longest beginning of `text` that has one; nothing if no rule applies.
  std::optional<Rule> longest(std::string_view text) const { return find(text, true); }
  /// The rule for the shortest beginning of `text` that has one.
  std::optional<Rule> shortest(std::string_view text) const { return find(text, false); }

  /// Whether a rule applies to a beginning of `text`, or might apply if more text followed.
  bool begins_rule(std::string_view text) const;

 private:
  std::optional<Rule> find(std::string_view text, bool longest) const;
  /// Calls `visit(length, place of the replacement)` for each rule that `text` begins with, shortest first, until
  /// `visit` returns false. Returns true if `visit` returned false, or if longer rules begin with all of `text`.
  template <typename Visit>
  bool walk(std::string_view text, Visit visit) const;

  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends in a zero byte
};

/// Applies `map` as the Precompiled normalizer of tokenizer.json does. A grapheme of less than 6 bytes is replaced by
/// the shortest rule for it. In longer graphemes, and those without a rule, characters are replaced one by one.
std::string apply_by_grapheme(const Charsmap& map, std::string_view text);

inline constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes `text` from base64. Errors    UsageError
std::string from_base64(std::string_view text);

}  // namespace trireme::text
