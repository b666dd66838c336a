// GPT-2's alphabet writes any bytes as printable characters. Byte-level vocabularies and merges are strings over these
// 256 characters. 188 bytes stand for themselves; the other 68 are U+0100, U+0101, ... in increasing order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::text {

/// The character for `byte`.
char32_t letter_of_byte(unsigned char byte);

/// `bytes` in the alphabet.
std::string to_byte_letters(std::string_view bytes);

/// The bytes that `letters` stands for; nothing if one of its characters is not in the alphabet.
std::optional<std::string> from_byte_letters(std::string_view letters);

}  // namespace trireme::text
