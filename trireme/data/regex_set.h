// A set of characters, as a class of a regular expression names it: built from ranges and Unicode categories, asked
// once per character of every text. Characters below U+10000 are one bit each, looked up; the rest is computed.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "trireme/data/unicode_classes.h"

namespace trireme::data {

class CharacterSet {
 public:
  void add(char32_t first, char32_t last) { ranges_.push_back({first, last}); }
  void add(char32_t code) { add(code, code); }
  /// The characters for which `holds` is true.
  void add_all(bool (*holds)(char32_t code)) { predicates_.push_back(holds); }
  void add_categories(CategoryMask mask, bool negated) { categories_ |= negated ? ~mask : mask; }
  void add_set(CharacterSet set) { sets_.push_back(std::move(set)); }
  void intersect(CharacterSet set) { required_.push_back(std::move(set)); }
  void negate() { negated_ = !negated_; }
  /// Every member's upper and lower case become members too (simple folding of one character to one).
  void ignore_case() { ignores_case_ = true; }
  /// Call once after the last change; `has` answers by the table from then on.
  void finish();

  bool has(char32_t code) const {
    if (code < kTabled) return (bits_[code / 64] >> (code % 64) & 1) != 0;
    return computed(code);
  }
  uint64_t ascii_low() const { return bits_[0]; }
  uint64_t ascii_high() const { return bits_[1]; }

  static CharacterSet spaces();
  static CharacterSet word();
  static CharacterSet everything_but_newline();

 private:
  static constexpr char32_t kTabled = 0x10000;

  bool computed(char32_t code) const;
  bool listed(char32_t code) const;

  std::vector<std::pair<char32_t, char32_t>> ranges_;
  CategoryMask categories_ = 0;
  std::vector<bool (*)(char32_t)> predicates_;
  std::vector<CharacterSet> sets_, required_;
  bool negated_ = false, ignores_case_ = false;
  std::vector<uint64_t> bits_;
};

}  // namespace trireme::data
