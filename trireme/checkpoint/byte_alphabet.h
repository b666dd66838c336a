// GPT-2's way to write any byte as a visible character, so that byte-level vocabularies are text.
#pragma once

#include <string>
#include <string_view>

namespace trireme::checkpoint {

/// True when every character of the UTF-8 text stands for a byte.
bool in_byte_alphabet(std::string_view text);

/// The bytes of `text`, one character each.
std::string spell_bytes(std::string_view text);

}  // namespace trireme::checkpoint
