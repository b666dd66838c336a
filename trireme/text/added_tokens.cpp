#include "trireme/text/added_tokens.h"

#include <algorithm>

#include "trireme/text/normalizer.h"
#include "trireme/text/unicode_classes.h"

namespace trireme::text {
namespace {

// As \w in Rust's expressions, which PyPI's tokenizers look with: joiners are parts of words there.
bool is_part_of_word(char32_t code) { return is_word(code) || code == 0x200C || code == 0x200D; }
bool ends_with_word(std::string_view text) {
  return !text.empty() && is_part_of_word(character_before(text.data(), text.data() + text.size()).code);
}
bool starts_with_word(std::string_view text) { return !text.empty() && is_part_of_word(character_at(text).code); }
size_t spaces_at_start(std::string_view text) { return text.size() - strip_spaces(text, true, false).size(); }
size_t without_spaces_at_end(std::string_view text) { return strip_spaces(text, false, true).size(); }

}  // namespace

void TokenFinder::set(std::vector<Pattern> patterns) {
  patterns_ = std::move(patterns);
  std::stable_sort(patterns_.begin(), patterns_.end(),
                   [](const Pattern& a, const Pattern& b) { return a.text < b.text; });
  for (const Pattern& p : patterns_) may_begin_[static_cast<unsigned char>(p.text[0])] = true;
}

// Narrows the sorted patterns byte by byte to those that begin like `rest`; the last complete one is the longest.
const TokenFinder::Pattern* TokenFinder::longest_at(std::string_view rest) const {
  auto low = patterns_.begin(), high = patterns_.end();
  const Pattern* longest = nullptr;
  for (size_t i = 0; i < rest.size() && low != high; ++i) {
    const auto before = [&](const Pattern& p, unsigned char byte) {
      return p.text.size() <= i || static_cast<unsigned char>(p.text[i]) < byte;
    };
    const auto byte = static_cast<unsigned char>(rest[i]);
    low = std::lower_bound(low, high, byte, before);
    high = std::upper_bound(low, high, byte, [&](unsigned char b, const Pattern& p) {
      return p.text.size() > i && b < static_cast<unsigned char>(p.text[i]);
    });
    if (low != high && low->text.size() == i + 1) longest = &*low;
  }
  return longest;
}

void TokenFinder::split(std::string_view text, bool parse_special, std::span<const int32_t> as_text,
                        const std::function<void(std::string_view, const AddedToken*)>& take) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !patterns_.empty();) {
    const bool is_possible = may_begin_[static_cast<unsigned char>(text[at])];
    const Pattern* found = is_possible ? longest_at(text.substr(at)) : nullptr;
    if (found == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + found->text.size();
    at = end;
    const AddedToken& token = *found->token;
    if (!parse_special && (token.special || std::find(as_text.begin(), as_text.end(), token.id) != as_text.end()))
      continue;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(without_spaces_at_end(text.substr(0, begin)), done);
    if (token.rstrip) end += spaces_at_start(text.substr(end));
    if (done < begin) take(text.substr(done, begin - done), nullptr);
    take(text.substr(begin, end - begin), &token);
    done = end;
  }
  if (done < text.size()) take(text.substr(done), nullptr);
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::function<std::string(std::string_view)>& normalize)
    : tokens_(std::move(tokens)) {
  std::vector<TokenFinder::Pattern> raw, normalized;
  for (AddedToken& token : tokens_) {
    if (token.content.empty()) continue;
    by_id_.emplace(token.id, &token);
    by_content_.emplace(token.content, &token);
    token.text = token.normalized ? normalize(token.content) : token.content;
    if (!token.text.empty()) (token.normalized ? normalized : raw).push_back({token.text, &token});
  }
  raw_.set(std::move(raw));
  normalized_.set(std::move(normalized));
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : at->second;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto at = by_content_.find(content);
  return at == by_content_.end() ? nullptr : at->second;
}

}  // namespace trireme::text
