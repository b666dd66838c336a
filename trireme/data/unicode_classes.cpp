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

enum Age : uint8_t { kUpTo8 = 0, kIn9 = 1, kLater = 2 };

struct NewerRun {
  char32_t first, last;
  Age age;
};

constexpr NewerRun kNewerRuns[] = {
#include "trireme/data/unicode_newer.inc"
};

// One byte a code point, filled on first use: a lookup is one load, and a text touches few of its pages.
struct Table {
  static constexpr int kAgeShift = 5;  // the category below, the age above
  static constexpr uint8_t kCategory = (1 << kAgeShift) - 1;

  std::unique_ptr<uint8_t[]> of = std::make_unique<uint8_t[]>(kIllFormed + 1);
  Table() {
    for (size_t i = 0; i < std::size(kRuns); ++i) {
      const char32_t end = i + 1 < std::size(kRuns) ? kRuns[i + 1].first : kIllFormed;
      std::fill(&of[kRuns[i].first], &of[end], static_cast<uint8_t>(kRuns[i].category));
    }
    of[kIllFormed] = static_cast<uint8_t>(Cn);
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

Category category_of(char32_t code) { return static_cast<Category>(entry(code) & Table::kCategory); }

Category category_in_unicode_9(char32_t code) {
  switch (code) {  // the category has changed since
    case 0x1CF2:
    case 0x1CF3:
      return Mc;
    case 0x111C9:
      return Po;
    default:
      return entry(code) >> Table::kAgeShift <= kIn9 ? category_of(code) : Cn;
  }
}

Category category_in_unicode_8(char32_t code) {
  switch (code) {
    case 0x166D:
    case 0x111C9:
      return Po;
    case 0x1734:
    case 0x1171E:
      return Mn;
    case 0x1885:
    case 0x1886:
      return Lo;
    case 0xA9BD:
      return Mc;
    default:
      return entry(code) >> Table::kAgeShift == kUpTo8 ? category_in_unicode_9(code) : Cn;
  }
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
