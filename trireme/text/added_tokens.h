// Added tokens, such as <|endoftext|> and <think>. They are found in the text before BPE, or another token model,
// encodes the rest. Special tokens have a meaning for the language model. Untrusted text is encoded without special
// tokens, so that it cannot forge them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< found only where it is a whole word
  bool lstrip = false;       ///< takes in the white space before it
  bool rstrip = false;       ///< takes in the white space after it
  bool normalized = false;   ///< is normalized itself, and searched for in normalized text
  bool special = false;      ///< has a meaning for the model, and readable output leaves it out
  std::string text = {};     ///< what it decodes to, set by AddedTokens: the content, normalized if `normalized`
};

/// Finds the leftmost, longest of several strings.
class TokenFinder {
 public:
  struct Pattern {
    std::string text;
    const AddedToken* token;
  };
  void set(std::vector<Pattern> patterns);

  /// Calls `take` for each section of `text` in order; `token` is null for text between tokens. Empty text has no
  /// section. Without `parse_special`, special tokens and the tokens with an id in `as_text` count as text.
  void split(std::string_view text, bool parse_special, std::span<const int32_t> as_text,
             const std::function<void(std::string_view section, const AddedToken* token)>& take) const;

 private:
  const Pattern* longest_at(std::string_view rest) const;

  std::vector<Pattern> patterns_;  // sorted by text
  bool may_begin_[256] = {};
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// `normalize` is the normalizer. It gives the form in which `normalized` tokens are searched for.
  AddedTokens(std::vector<AddedToken> tokens, const std::function<std::string(std::string_view)>& normalize);
  AddedTokens(AddedTokens&&) = default;
  AddedTokens& operator=(AddedTokens&&) = default;

  const TokenFinder& raw() const { return raw_; }                ///< for text before the normalizer
  const TokenFinder& normalized() const { return normalized_; }  ///< for normalized text
  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;  // never resized: the finders and maps point into it
  std::unordered_map<int32_t, const AddedToken*> by_id_;
  std::unordered_map<std::string_view, const AddedToken*> by_content_;
  TokenFinder raw_, normalized_;
};

}  // namespace trireme::text
