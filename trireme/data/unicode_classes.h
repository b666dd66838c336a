// What Unicode 16.0 says about a code point: its general category, whether it is a space or part of a word. The table
// is data (unicode_classes.inc, written by scripts/unicode_classes.py), because the systems' libraries are older than
// what PyPI's tokenizers and tiktoken know, and a letter more or less changes ids. What parts of the judges know of
// older versions is data too (unicode_newer.inc); tests/data/unicode_judge.py compares every code point.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "trireme/data/utf8.h"

namespace trireme::data {

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

/// The categories that `name` stands for in a regular expression: "L", "Lu", "Letter", "P"; nothing when unknown.
std::optional<CategoryMask> categories_named(std::string_view name);

Category category_of(char32_t code);  ///< Cn for kIllFormed

inline bool is_in(char32_t code, CategoryMask mask) { return (mask >> static_cast<int>(category_of(code)) & 1) != 0; }

/// The category that Unicode 9.0 or 8.0 gave; Cn for what came later. Parts of PyPI's tokenizers know no newer one.
Category category_in_unicode_9(char32_t code);
Category category_in_unicode_8(char32_t code);

/// White_Space.
inline constexpr bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || c == ' ';
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

/// Part of a word, as the \w of regular expressions has it: alphabetic, mark, decimal digit, connector.
bool is_word(char32_t code);

}  // namespace trireme::data
