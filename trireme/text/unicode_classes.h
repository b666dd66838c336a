// Unicode 16.0's properties of a code point: its general category, and whether it is a space or part of a word. The
// table is our own (unicode_classes.inc, written by scripts/unicode_classes.py), because system libraries are older
// than PyPI's tokenizers and tiktoken, and one letter more or less changes ids. Parts of both still use Unicode 8 or 9,
// so unicode_newer.inc lists what came later. tests/text/unicode_judge.py compares every code point with both.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "trireme/text/utf8.h"

namespace trireme::text {

// clang-format off
enum class Category : uint8_t {
  Lu, Ll, Lt, Lm, Lo, Mn, Mc, Me, Nd, Nl, No, Pc, Pd, Ps, Pe, Pi, Pf, Po, Sm, Sc, Sk, So, Zs, Zl, Zp, Cc, Cf, Cs, Co, Cn
};
// clang-format on
inline constexpr int kNumCategories = 30;

/// A set of categories, one bit each.
using CategoryMask = uint32_t;
inline constexpr CategoryMask kLetters = 0x1F, kMarks = 0x7 << 5, kNumbers = 0x7 << 8, kPunctuation = 0x7F << 11;

inline constexpr CategoryMask mask_of(Category category) { return CategoryMask{1} << static_cast<int>(category); }

/// The categories that `name` means in a regular expression ("L", "Lu", "Letter", "P"); nothing if it is unknown.
std::optional<CategoryMask> categories_named(std::string_view name);

Category category_of(char32_t code);  ///< Cn for kIllFormed

inline bool is_in(char32_t code, CategoryMask mask) { return (mask >> static_cast<int>(category_of(code)) & 1) != 0; }

/// The category in Unicode 9.0 or 8.0, the versions that parts of PyPI's tokenizers use; Cn for later characters.
Category category_in_unicode_9(char32_t code);
Category category_in_unicode_8(char32_t code);

/// Unicode's property White_Space.
inline constexpr bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || c == ' ';
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

/// Part of a word, as \w in regular expressions: alphabetic, mark, decimal digit, connector.
bool is_word(char32_t code);
/// The same in Python's expressions: a letter, number of any kind or underscore, and no mark.
bool is_word_of_python(char32_t code);

}  // namespace trireme::text
