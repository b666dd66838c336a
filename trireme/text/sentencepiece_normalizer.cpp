#include "trireme/text/sentencepiece_normalizer.h"

#include <algorithm>

#include "trireme/text/pre_tokenizer.h"
#include "trireme/text/utf8.h"

namespace trireme::text {

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceFile& file)
    : add_prefix_(file.add_dummy_prefix),
      join_spaces_(file.remove_extra_whitespaces),
      escape_(file.escape_whitespaces) {
  if (!file.charsmap.empty()) charsmap_.emplace(file.charsmap);
  std::vector<ByteTrie::Entry> kept;
  for (const auto& piece : file.pieces)
    if (piece.type == SentencePieceFile::Type::user_defined) kept.emplace_back(piece.text, 0);
  has_user_defined_ = !kept.empty();
  // An ASCII character other than the space stays as it is before another one, unless a rule begins with the two.
  for (int first = 0; first < 128; ++first)
    for (int second = 0; second < 128; ++second) {
      const char two[] = {static_cast<char>(first), static_cast<char>(second)};
      const std::string_view text(two, 2);
      const bool begins =
          (charsmap_ && charsmap_->begins_rule(text)) || std::any_of(kept.begin(), kept.end(), [&](const auto& k) {
            return k.first.starts_with(two[0]) && (k.first.size() == 1 || k.first[1] == two[1]);
          });
      plain_[static_cast<size_t>(first)][static_cast<size_t>(second)] = !begins && first != ' ';
    }
  user_defined_ = ByteTrie(std::move(kept));
}

SentencePieceNormalizer::Step SentencePieceNormalizer::step(std::string_view text) const {
  size_t kept = 0;
  if (has_user_defined_) user_defined_.for_each_prefix(text, [&](size_t length, int32_t) { kept = length; });
  if (kept > 0) return {kept, text.substr(0, kept)};
  if (charsmap_)
    if (const auto rule = charsmap_->longest(text)) return {rule->length, rule->replacement};
  const Character c = character_at(text);
  if (c.code == kIllFormed) return {1, "\xEF\xBF\xBD"};
  const auto bytes = static_cast<size_t>(c.bytes);
  return {bytes, text.substr(0, bytes)};
}

size_t SentencePieceNormalizer::plain_run(std::string_view text) const {
  size_t count = 0;
  while (count + 1 < text.size()) {
    const auto first = static_cast<unsigned char>(text[count]), second = static_cast<unsigned char>(text[count + 1]);
    if ((first | second) >= 128 || !plain_[first][second]) break;
    ++count;
  }
  return count;
}

std::string SentencePieceNormalizer::operator()(std::string_view text, bool is_inside) const {
  const std::string_view space = escape_ ? kMetaspace : " ";
  while (join_spaces_ && !is_inside && !text.empty()) {
    const Step first = step(text);
    if (first.text != " ") break;
    text.remove_prefix(first.length);
  }
  std::string out;
  if (text.empty()) return out;
  if (add_prefix_ && !is_inside) out += space;
  bool after_space = join_spaces_ && !is_inside;
  out.reserve(text.size() + text.size() / 4 + 8);
  while (!text.empty()) {
    if (const size_t count = plain_run(text); count > 0) {
      out.append(text.substr(0, count));
      text.remove_prefix(count);
      after_space = false;
      continue;
    }
    Step next = step(text);
    text.remove_prefix(next.length);
    while (after_space && next.text.starts_with(' ')) next.text.remove_prefix(1);
    for (const char c : next.text) out.append(c == ' ' ? space : std::string_view(&c, 1));
    if (!next.text.empty()) after_space = next.text.ends_with(' ');
    if (!join_spaces_) after_space = false;
  }
  while (join_spaces_ && out.ends_with(space)) out.erase(out.size() - space.size());
  return out;
}

}  // namespace trireme::text
