// SentencePiece's compiled normaliser ("precompiled_charsmap"): for each string that a text may begin with, what it
// becomes. The longest one counts. The blob is a double-array trie (darts-clone) and the replacements behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

class Charsmap {
 public:
  /// Errors    UsageError when the blob is cut short
  explicit Charsmap(std::string_view blob);

  struct Rule {
    size_t length;  ///< bytes of the text
    std::string_view replacement;
  };
  /// The rule for the longest beginning of `text`; nothing when none applies.
  std::optional<Rule> longest(std::string_view text) const { return find(text, true); }
  /// The rule for the shortest beginning of `text`.
  std::optional<Rule> shortest(std::string_view text) const { return find(text, false); }

  /// Whether a rule applies to a beginning of `text`, or might once more text follows it.
  bool begins_rule(std::string_view text) const;

 private:
  std::optional<Rule> find(std::string_view text, bool longest) const;
  /// Calls `visit(length, place of the replacement)` for each rule that `text` begins with, shortest first, until it is
  /// false; whether it was, or all of `text` is the beginning of rules.
  template <typename Visit>
  bool walk(std::string_view text, Visit visit) const;

  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends in a zero byte
};

/// `text` as the Precompiled normalizer of tokenizer.json makes it: a grapheme below 6 bytes becomes what the shortest
/// rule for it says, and where there is none, its characters one by one.
std::string apply_by_grapheme(const Charsmap& map, std::string_view text);

/// The bytes that `text` writes in base64. Errors    UsageError
std::string from_base64(std::string_view text);

}  // namespace trireme::data
