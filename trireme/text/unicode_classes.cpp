#include "trireme/text/unicode_classes.h"

#include <algorithm>
#include <memory>

namespace trireme::text {
namespace {

using enum Category;

constexpr auto LuLl = static_cast<Category>(kNumCategories);  // capital and small letters alternate

struct Run {
  Category category;
  uint32_t length;
};
constexpr Run kRuns[] = {
#include "trireme/text/unicode_classes.inc"
};

enum Age : uint8_t { kUpTo8 = 0, kIn9 = 1, kLater = 2 };

struct NewerRun {
  char32_t first, last;
  Age age;
};
constexpr NewerRun kNewerRuns[] = {
#include "trireme/text/unicode_newer.inc"
};

// One byte a code point, filled on first use. A lookup is one load, and a text touches few of the pages.
struct Table {
  static constexpr int kAgeShift = 5;  // the category below, the age above
  static constexpr uint8_t kCategory = (1 << kAgeShift) - 1;

  std::unique_ptr<uint8_t[]> of = std::make_unique<uint8_t[]>(kIllFormed + 1);
  Table() {
    uint8_t* at = of.get();
    for (const Run& run : kRuns) {
      std::fill_n(at, run.length, static_cast<uint8_t>(run.category == LuLl ? Lu : run.category));
      for (uint32_t i = 1; run.category == LuLl && i < run.length; i += 2) at[i] = static_cast<uint8_t>(Ll);
      at += run.length;
    }
    *at = static_cast<uint8_t>(Cn);  // kIllFormed
    for (const NewerRun& run : kNewerRuns)
      for (char32_t code = run.first; code <= run.last; ++code) of[code] |= static_cast<uint8_t>(run.age << kAgeShift);
  }
};

uint8_t entry(char32_t code) {
  static const Table table;
  return table.of[code <= kIllFormed ? code : kIllFormed];
}

constexpr std::string_view kNames[kNumCategories] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                     "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                                     "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

constexpr std::string_view kLongNames[][2] = {{"Letter", "L"},
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

Category category_of(char32_t code) { return static_cast<Category>(entry(code) & Table::kCategory); }

Category category_in_unicode_9(char32_t code) {
  if (code == 0x1CF2 || code == 0x1CF3) return Mc;  // these have another category now
  if (code == 0x111C9) return Po;
  return entry(code) >> Table::kAgeShift <= kIn9 ? category_of(code) : Cn;
}

Category category_in_unicode_8(char32_t code) {
  if (code == 0x166D || code == 0x111C9) return Po;  // these too
  if (code == 0x1734 || code == 0x1171E) return Mn;
  if (code == 0x1885 || code == 0x1886) return Lo;
  if (code == 0xA9BD) return Mc;
  return entry(code) >> Table::kAgeShift == kUpTo8 ? category_in_unicode_9(code) : Cn;
}

std::optional<CategoryMask> categories_named(std::string_view name) {
  for (const auto& [known, short_name] : kLongNames)
    if (known == name) name = short_name;
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

bool is_word_of_python(char32_t c) { return c == '_' || is_in(c, kLetters | mask_of(Nd) | mask_of(Nl) | mask_of(No)); }

}  // namespace trireme::text
