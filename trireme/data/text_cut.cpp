#include "trireme/data/text_cut.h"

#include <algorithm>
#include <vector>

namespace trireme::data {
namespace {

constexpr size_t kContextBytes = 2048;
constexpr int kMostAttempts = 32;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_printed(char c) { return c > ' ' && c < '\x7f'; }

bool is_good(const text::Tokenizer& tokenizer, std::string_view text, const TextCut& cut) {
  const auto left_end = static_cast<size_t>(cut.left_end), right_begin = static_cast<size_t>(cut.right_begin);
  const size_t begin = left_end - std::min(left_end, kContextBytes);
  const std::string_view right = text.substr(right_begin, kContextBytes);
  const std::string_view left = text.substr(begin, left_end - begin);
  const std::vector<int32_t> whole = tokenizer.encode(text.substr(begin, right_begin - begin + right.size()));
  std::vector<int32_t> apart = tokenizer.encode(left);
  const std::vector<int32_t> second = tokenizer.encode(right);
  apart.insert(apart.end(), second.begin(), second.end());
  return apart == whole;
}

std::optional<TextCut> find(const text::Tokenizer& tokenizer, std::string_view text, size_t from, char separator) {
  int attempts = 0;
  for (size_t at = text.find(separator, std::max<size_t>(from, 1));
       at != std::string_view::npos && at + 1 < text.size(); at = text.find(separator, at + 1)) {
    if (!is_printed(text[at - 1]) || !is_letter(text[at + 1])) continue;
    const auto place = static_cast<int64_t>(at);
    const TextCut cut = separator == '\n' ? TextCut{place + 1, place + 1} : TextCut{place, place + 1};
    if (is_good(tokenizer, text, cut)) return cut;
    if (++attempts == kMostAttempts) break;
  }
  return std::nullopt;
}

}  // namespace

std::optional<TextCut> find_cut(const text::Tokenizer& tokenizer, std::string_view text, int64_t from) {
  if (tokenizer.splits_anywhere()) return TextCut{from, from};
  const auto first = static_cast<size_t>(from);
  if (const auto cut = find(tokenizer, text, first, '\n')) return cut;
  return find(tokenizer, text, first, ' ');
}

}  // namespace trireme::data
