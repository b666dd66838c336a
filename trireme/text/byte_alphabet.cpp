#include "trireme/text/byte_alphabet.h"

#include "trireme/text/utf8.h"

namespace trireme::text {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> letter{};
  std::array<int16_t, 0x100 + 68> byte{};
  constexpr Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      letter[static_cast<size_t>(b)] = stands_for_itself(b) ? static_cast<char32_t>(b) : next++;
      byte[letter[static_cast<size_t>(b)]] = static_cast<int16_t>(b);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

char32_t letter_of_byte(unsigned char byte) { return kAlphabet.letter[byte]; }

std::string to_byte_letters(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) append_utf8(letters, letter_of_byte(static_cast<unsigned char>(byte)));
  return letters;
}

std::optional<std::string> from_byte_letters(std::string_view letters) {
  std::string bytes;
  bool are_known = true;
  for_each_character(letters, [&](char32_t code, std::string_view) {
    are_known = are_known && code < kAlphabet.byte.size() && kAlphabet.byte[code] >= 0;
    if (are_known) bytes += static_cast<char>(kAlphabet.byte[code]);
  });
  return are_known ? std::optional(std::move(bytes)) : std::nullopt;
}

}  // namespace trireme::text
