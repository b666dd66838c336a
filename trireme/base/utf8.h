// One UTF-8 character at a time (Unicode 15, section 3.9, table 3-7). A byte outside well-formed characters counts as a
// character of its own (kIllFormed), so code can walk through any bytes and loses none.
#pragma once

#include <string_view>

namespace trireme::base {

inline constexpr char32_t kIllFormed = 0x110000;  ///< in no class, not a space

struct Character {
  char32_t code;
  int bytes;
};

/// The character at `at`, which is before `end`.
inline Character character_at(const char* at, const char* end) {
  const auto byte = [&](int i) { return static_cast<unsigned char>(at[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const auto rest = end - at;
  const auto follows = [&](int i) { return (byte(i) & 0xC0) == 0x80; };
  if (lead >= 0xC2 && lead <= 0xDF && rest >= 2 && follows(1)) return {(lead & 0x1F) << 6 | (byte(1) & 0x3Fu), 2};
  if (lead >= 0xE0 && lead <= 0xEF && rest >= 3 && follows(1) && follows(2)) {
    const char32_t code = (lead & 0x0F) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    if (code >= 0x800 && (code < 0xD800 || code > 0xDFFF)) return {code, 3};
  }
  if (lead >= 0xF0 && lead <= 0xF4 && rest >= 4 && follows(1) && follows(2) && follows(3)) {
    const char32_t code = (lead & 0x07) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
    if (code >= 0x10000 && code <= 0x10FFFF) return {code, 4};
  }
  return {kIllFormed, 1};
}

/// The character at byte `at` of `text`.
inline Character character_at(std::string_view text, size_t at = 0) {
  return character_at(text.data() + at, text.data() + text.size());
}

}  // namespace trireme::base
