#include "trireme/text/regex_class_parser.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/parse_whole.h"

namespace trireme::text {

bool PatternScanner::take(std::string_view text) {
  if (pattern_.substr(at_, text.size()) != text) return false;
  at_ += text.size();
  return true;
}

char32_t PatternScanner::character() {
  if (done()) fail("an end where a character should be");
  const Character c = character_at(pattern_, at_);
  at_ += static_cast<size_t>(c.bytes);
  return c.code;
}

bool PatternScanner::bounds(int& min, int& max, bool& is_one_number) {
  if (!sees('{')) return false;
  const size_t close = pattern_.find('}', at_);
  if (close == std::string_view::npos) return false;
  const std::string_view inside = pattern_.substr(at_ + 1, close - at_ - 1);
  const size_t comma = inside.find(',');
  const auto number = [](std::string_view digits) {
    const auto value = base::parse_whole<int>(digits);
    return value && *value >= 0 ? value : std::nullopt;
  };
  const auto low = number(inside.substr(0, comma));
  if (comma == std::string_view::npos) {
    if (!low) return false;
    min = max = *low;
  } else {
    const std::string_view upper = inside.substr(comma + 1);
    const auto high = number(upper);
    if ((comma > 0 && !low) || (!upper.empty() && !high) || (comma == 0 && upper.empty() && !is_python_)) return false;
    min = low.value_or(0);
    max = high.value_or(-1);
  }
  is_one_number = comma == std::string_view::npos;
  at_ = close + 1;
  return true;
}

std::string_view PatternScanner::until(char end) {
  const size_t close = pattern_.find(end, at_);
  if (close == std::string_view::npos) fail(fmt::format("no {} behind what is open", end));
  const std::string_view inside = pattern_.substr(at_, close - at_);
  at_ = close + 1;
  return inside;
}

void PatternScanner::fail(std::string_view what) const { throw UsageError(fmt::format("{} at byte {}", what, at_)); }

namespace {

char32_t hexadecimal(PatternScanner& scan, int digits) {
  std::string text;
  if (scan.take("{")) {
    text = scan.until('}');
  } else {
    for (int i = 0; i < digits; ++i) text += static_cast<char>(scan.character());
  }
  const auto value = base::parse_whole<uint32_t>(text, 16);
  if (!value || *value > 0x10FFFF) scan.fail("a hexadecimal number that is no character");
  return *value;
}

/// Up to two digits behind \0.
char32_t octal(PatternScanner& scan) {
  char32_t value = 0;
  for (int i = 0; i < 2; ++i)
    for (char digit = '0'; digit <= '7'; ++digit)
      if (scan.sees(digit)) {
        value = value * 8 + (scan.character() - '0');
        break;
      }
  return value;
}

CharacterSet categories(PatternScanner& scan, bool negated) {
  std::string name;
  if (scan.take("{")) {
    name = scan.until('}');
  } else {
    append_utf8(name, scan.character());
  }
  if (!name.empty() && name[0] == '^') {
    negated = !negated;
    name.erase(0, 1);
  }
  const auto mask = categories_named(name);
  if (!mask) scan.fail(fmt::format("the class \\p{{{}}}, which is not a general category,", name));
  CharacterSet set;
  set.add_categories(*mask, negated);
  return set;
}

CharacterSet complement_if(CharacterSet set, bool negated) {
  if (negated) set.negate();
  return set;
}

struct Escape {
  std::optional<char32_t> character;  ///< or else a set
  CharacterSet set;
};

Escape escape(PatternScanner& scan) {
  constexpr std::u32string_view kNames = U"nrtfvae", kCharacters = U"\n\r\t\f\v\a\x1B", kNegated = U"SWDHP";
  const char32_t c = scan.character();
  if (const size_t at = kNames.find(c); at != kNames.npos) return {kCharacters[at], {}};
  const bool negated = kNegated.find(c) != kNegated.npos;
  CharacterSet set;
  switch (negated ? c - 'A' + 'a' : c) {
    case 's':
      set.add_set(CharacterSet::spaces());
      if (scan.is_python()) set.add(0x1C, 0x1F);
      return {{}, complement_if(std::move(set), negated)};
    case 'w':
      return {{}, complement_if(CharacterSet::word(scan.is_python()), negated)};
    case 'd':
      set.add_categories(mask_of(Category::Nd), negated);
      return {{}, std::move(set)};
    case 'h':  // Oniguruma's hexadecimal digits
      set.add('0', '9'), set.add('a', 'f'), set.add('A', 'F');
      return {{}, complement_if(std::move(set), negated)};
    case 'p':
      return {{}, categories(scan, negated)};
    case 'x':
      return {hexadecimal(scan, 2), {}};
    case 'u':
      return {hexadecimal(scan, 4), {}};
    case '0':
      return {octal(scan), {}};
    default:
      if ((c >= '1' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        scan.fail(fmt::format("the escape \\{}", static_cast<char>(c)));
      return {c, {}};
  }
}

CharacterSet bracket(PatternScanner& scan, int depth) {
  if (depth > 20) scan.fail("classes nested more than 20 deep");
  const bool negated = scan.take("^");
  CharacterSet set;
  for (bool first = true; first || !scan.sees(']'); first = false) {
    if (scan.done()) scan.fail("a [ without its ]");
    if (!scan.is_python() && scan.sees('[')) {
      if (scan.take("[:")) scan.fail("a POSIX class");
      set.add_set(parse_character_class(scan, depth + 1));
      continue;
    }
    if (!scan.is_python() && scan.take("&&")) {
      CharacterSet rest;  // everything up to the closing bracket is the other side
      for (bool empty = true; empty || !scan.sees(']'); empty = false)
        rest.add_set(parse_character_class(scan, depth + 1));
      set.intersect(std::move(rest));
      continue;
    }
    Escape e = scan.take("\\") ? escape(scan) : Escape{scan.character(), {}};
    if (!e.character) {
      set.add_set(std::move(e.set));
      continue;
    }
    const char32_t low = *e.character;
    if (!scan.take("-")) {
      set.add(low);
      continue;
    }
    if (scan.sees(']')) {  // a hyphen at the end is itself
      set.add(low), set.add('-');
      continue;
    }
    e = scan.take("\\") ? escape(scan) : Escape{scan.character(), {}};
    if (!e.character) scan.fail("a range that ends in a class");
    const char32_t high = *e.character;
    if (high < low) scan.fail("a range that ends before it begins");
    set.add(low, high);
  }
  scan.take("]");
  if (negated) set.negate();
  return set;
}

}  // namespace

CharacterSet parse_character_class(PatternScanner& scan, int depth) {
  if (scan.take("[")) return bracket(scan, depth);
  Escape e = scan.take("\\") ? escape(scan) : Escape{scan.character(), {}};
  if (e.character) e.set.add(*e.character);
  return std::move(e.set);
}

}  // namespace trireme::text
