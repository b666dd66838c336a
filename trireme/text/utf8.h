// One UTF-8 character at a time. A byte outside well-formed characters counts as a character of its own (kIllFormed),
// so code can walk through any bytes and loses none. Ill-formed bytes are shown as U+FFFD, one for each maximal
// ill-formed piece (Unicode 15, section 3.9, table 3-8).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::text {

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

/// Calls visit(code, its bytes) for each character of `text`.
template <typename Visit>
void for_each_character(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    visit(c.code, text.substr(at, static_cast<size_t>(c.bytes)));
    at += static_cast<size_t>(c.bytes);
  }
}

/// The character that ends at `at`, which is behind `begin`.
inline Character character_before(const char* begin, const char* at) {
  for (int bytes = 1; bytes <= 4 && at - bytes >= begin; ++bytes) {
    if ((static_cast<unsigned char>(at[-bytes]) & 0xC0) == 0x80) continue;
    const Character c = character_at(at - bytes, at);
    if (c.bytes == bytes) return c;
    break;
  }
  return {kIllFormed, 1};
}

inline void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F)), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  }
}

/// `text` up to the first byte that belongs to no well-formed character.
std::string_view well_formed_prefix(std::string_view text);

/// True when every byte belongs to a well-formed character.
bool is_utf8(std::string_view text);

/// Which ends of a text lose their white space.
struct StrippedEnds {
  bool start = true, end = true;
};
/// `text` without white space at its ends, as Python's strip() and Jinja's trim; at one end as lstrip() and rstrip().
std::string stripped(std::string_view text, const StrippedEnds& ends = {});

/// `text` with U+FFFD for ill-formed pieces.
std::string well_formed(std::string_view text);

/// Passes bytes on in whole characters, so that text can be printed while it is generated token by token. The first
/// bytes of a character wait for its last byte.
class Utf8Stream {
 public:
  /// Adds `bytes`; returns all text that is now complete.
  std::string push(std::string_view bytes);

  /// The end of the text: returns U+FFFD if an unfinished character still waits.
  std::string finish();

 private:
  std::string waiting_;  // a proper prefix of one character, at most 3 bytes
};

}  // namespace trireme::text
