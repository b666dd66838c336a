#include "trireme/data/unicode_classes.h"

#include <algorithm>
#include <iterator>
#include <memory>

namespace trireme::data {
namespace {

using enum Category;

struct Run {
  char32_t first;
  Category category;
};

constexpr Run kRuns[] = {
#include "trireme/data/unicode_classes.inc"
};

// One byte a code point, filled on first use: a lookup is one load, and a text touches few of its pages.
struct Table {
  std::unique_ptr<Category[]> of = std::make_unique<Category[]>(kIllFormed + 1);
  Table() {
    for (size_t i = 0; i < std::size(kRuns); ++i) {
      const char32_t end = i + 1 < std::size(kRuns) ? kRuns[i + 1].first : kIllFormed;
      std::fill(&of[kRuns[i].first], &of[end], kRuns[i].category);
    }
    of[kIllFormed] = Cn;
  }
};

constexpr std::string_view kNames[kNumCategories] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                     "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                                     "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

struct LongName {
  std::string_view name, letter;
};
constexpr LongName kLongNames[] = {{"Letter", "L"},
                                   {"Mark", "M"},
                                   {"Number", "N"},
                                   {"Punctuation", "P"},
                                   {"Punct", "P"},
                                   {"Symbol", "S"},
                                   {"Separator", "Z"},
                                   {"Other", "C"},
                                   {"Decimal_Number", "Nd"},
                                   {"Uppercase_Letter", "Lu"},
                                   {"Lowercase_Letter", "Ll"}};

}  // namespace

Category category_of(char32_t code) {
  static const Table table;
  return table.of[code <= kIllFormed ? code : kIllFormed];
}

std::optional<CategoryMask> categories_named(std::string_view name) {
  for (const LongName& known : kLongNames)
    if (known.name == name) name = known.letter;
  CategoryMask mask = 0;
  for (int i = 0; i < kNumCategories; ++i)
    if (kNames[i] == name || (name.size() == 1 && kNames[i][0] == name[0])) mask |= CategoryMask{1} << i;
  if (mask == 0) return std::nullopt;
  return mask;
}

bool is_word(char32_t c) {
  constexpr CategoryMask kWord = kLetters | kMarks | mask_of(Nd) | mask_of(Nl) | mask_of(Pc);
  if (is_in(c, kWord)) return true;
  // Alphabetic symbols: circled, parenthesised and squared letters.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

}  // namespace trireme::data
