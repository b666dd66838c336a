// The tokens that are looked for in the text itself, before any model: <|endoftext|>, <think>. Special ones mean
// something to the model; text from strangers is encoded without looking for those, so that it cannot forge them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme::data {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< only between word boundaries
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< takes the white space behind it
  bool normalized = false;   ///< looked for after the normalizer, in its normal form
  bool special = false;      ///< belongs to the model, not to the text: left out of readable output
};

/// Finds the leftmost, longest of several strings.
class TokenFinder {
 public:
  struct Pattern {
    std::string text;
    const AddedToken* token;
  };
  void set(std::vector<Pattern> patterns);

  /// Hands out the sections of `text` in order: `token` null for text between tokens. Empty text has no section.
  /// Without `parse_special`, special tokens are text, and so are those of the ids `as_text`.
  void split(std::string_view text, bool parse_special, std::span<const int32_t> as_text,
             const std::function<void(std::string_view section, const AddedToken* token)>& take) const;

 private:
  const Pattern* longest_at(std::string_view rest) const;

  std::vector<Pattern> patterns_;  // sorted by text
  bool may_begin_[256] = {};
};

class AddedTokens {
 public:
  /// `normalize` makes the form in which a `normalized` token is looked for.
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, const std::function<std::string(std::string_view)>& normalize);
  AddedTokens(AddedTokens&&) = default;
  AddedTokens& operator=(AddedTokens&&) = default;

  const TokenFinder& raw() const { return raw_; }                ///< looked for before the normalizer
  const TokenFinder& normalized() const { return normalized_; }  ///< and after it
  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;  // never resized: the finders and maps point into it
  std::unordered_map<int32_t, const AddedToken*> by_id_;
  std::unordered_map<std::string_view, const AddedToken*> by_content_;
  TokenFinder raw_, normalized_;
};

}  // namespace trireme::data
