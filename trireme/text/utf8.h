// One UTF-8 character at a time. A byte outside well-formed characters counts as a character of its own (kIllFormed),
// so code can walk through any bytes and loses none. Ill-formed bytes are shown as U+FFFD, one for each maximal
// ill-formed piece (Unicode 15, section 3.9, table 3-8).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/utf8.h"

namespace trireme::text {

using base::Character;
using base::character_at;
using base::kIllFormed;

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
