#include "trireme/text/charsmap.h"

#include <utf8proc.h>

#include <cstring>

#include "trireme/base/error.h"
#include "trireme/text/utf8.h"

namespace trireme::text {
namespace {
uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
uint32_t label(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
}  // namespace

Charsmap::Charsmap(std::string_view blob) {
  uint32_t trie_bytes = 0;
  if (blob.size() < 4) throw UsageError("the character map is shorter than its header");
  std::memcpy(&trie_bytes, blob.data(), 4);
  if (trie_bytes > blob.size() - 4 || trie_bytes % 4 != 0 || trie_bytes == 0)
    throw UsageError("the character map is shorter than its header says");
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), blob.data() + 4, trie_bytes);
  replacements_ = blob.substr(4 + trie_bytes);
}

template <typename Visit>
bool Charsmap::walk(std::string_view text, Visit visit) const {
  uint32_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label(units_[node]) != byte) return false;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (node >= units_.size()) return false;
    if (has_value(unit) && !visit(i + 1, units_[node] & ((1u << 31) - 1))) return true;
  }
  return true;
}

std::optional<Charsmap::Rule> Charsmap::find(std::string_view text, bool longest) const {
  std::optional<uint32_t> value;
  size_t length = 0;
  walk(text, [&](size_t so_far, uint32_t at) {
    value = at;
    length = so_far;
    return longest;
  });
  if (!value || *value >= replacements_.size()) return std::nullopt;
  return Rule{length, std::string_view(replacements_.data() + *value)};
}

bool Charsmap::begins_rule(std::string_view text) const {
  return walk(text, [](size_t, uint32_t) { return false; });
}

std::string apply_by_grapheme(const Charsmap& map, std::string_view text) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    Character last = character_at(text, begin);
    size_t end = begin + static_cast<size_t>(last.bytes);
    utf8proc_int32_t state = 0;
    while (end < text.size()) {
      const Character next = character_at(text, end);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.code),
                                           static_cast<utf8proc_int32_t>(next.code), &state))
        break;
      end += static_cast<size_t>(next.bytes);
      last = next;
    }
    const std::string_view grapheme = text.substr(begin, end - begin);
    const auto whole = grapheme.size() < 6 ? map.shortest(grapheme) : std::nullopt;
    if (whole) out += whole->replacement;
    for (size_t at = begin; at < end && !whole;) {
      const auto bytes = static_cast<size_t>(character_at(text, at).bytes);
      const auto one = map.shortest(text.substr(at, bytes));
      out += one ? one->replacement : text.substr(at, bytes);
      at += bytes;
    }
    begin = end;
  }
  return out;
}

std::string from_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t value = kBase64Digits.find(c);
    if (value == std::string_view::npos) throw UsageError("it is not base64");
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  if (text.size() % 4 == 1) throw UsageError("it is not base64");
  return bytes;
}

}  // namespace trireme::text
