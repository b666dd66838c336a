#include "trireme/text/regex_set.h"

#include <utf8proc.h>

#include <algorithm>

namespace trireme::text {

bool CharacterSet::listed(char32_t code) const {
  if (is_in(code, categories_)) return true;
  for (const auto holds : predicates_)
    if (holds(code)) return true;
  for (const auto& [first, last] : ranges_)
    if (code >= first && code <= last) return true;
  return std::any_of(sets_.begin(), sets_.end(), [&](const CharacterSet& s) { return s.computed(code); });
}

bool CharacterSet::computed(char32_t code) const {
  bool in = listed(code);
  const bool is_turkic = code == 0x130 || code == 0x131;  // equal to i in Turkish alone
  if (!in && ignores_case_ && code < kIllFormed && !is_turkic) {
    const auto point = static_cast<utf8proc_int32_t>(code), upper = utf8proc_toupper(point);
    in = std::ranges::any_of(std::array{utf8proc_tolower(point), upper, utf8proc_tolower(upper)},
                             [&](utf8proc_int32_t other) { return listed(static_cast<char32_t>(other)); });
  }
  in = in && std::all_of(required_.begin(), required_.end(), [&](const CharacterSet& s) { return s.computed(code); });
  return in != negated_;
}

void CharacterSet::finish() {
  bits_.assign(kTabled / 64, 0);
  for (char32_t code = 0; code < kTabled; ++code)
    if (computed(code)) bits_[code / 64] |= uint64_t{1} << (code % 64);
}

CharacterSet CharacterSet::spaces() {
  CharacterSet set;
  for (char32_t code = 0; code <= 0x3000; ++code)
    if (is_space(code)) set.add(code);
  return set;
}

CharacterSet CharacterSet::word(bool of_python) {
  CharacterSet set;
  set.add_all(of_python ? is_word_of_python : is_word);
  return set;
}

CharacterSet CharacterSet::everything_but_newline() {
  CharacterSet set;
  set.add('\n');
  set.negate();
  return set;
}

}  // namespace trireme::text
