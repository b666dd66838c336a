// A set of characters: a class of a regular expression, built from ranges and Unicode categories. It is asked once for
// every character of every text. Characters below U+10000 are looked up, one bit each; the rest is computed.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "trireme/text/unicode_classes.h"

namespace trireme::text {

class CharacterSet {
 public:
  void add(char32_t first, char32_t last) { ranges_.push_back({first, last}); }
  void add(char32_t code) { add(code, code); }
  /// Adds the characters for which `holds` is true.
  void add_all(bool (*holds)(char32_t code)) { predicates_.push_back(holds); }
  void add_categories(CategoryMask mask, bool negated) { categories_ |= negated ? ~mask : mask; }
  void add_set(CharacterSet set) { sets_.push_back(std::move(set)); }
  void intersect(CharacterSet set) { required_.push_back(std::move(set)); }
  void negate() { negated_ = !negated_; }
  /// Adds the upper and lower case of every member (simple folding of one character to one).
  void ignore_case() { ignores_case_ = true; }
  /// Call once, after the last change: it fills the table that `has` uses.
  void finish();

  bool has(char32_t code) const {
    if (code < kTabled) return (bits_[code / 64] >> (code % 64) & 1) != 0;
    return computed(code);
  }
  uint64_t ascii_low() const { return bits_[0]; }  ///< bit c: has(c), for characters 0 to 63
  uint64_t ascii_high() const { return bits_[1]; }  ///< the same for 64 to 127

  static CharacterSet spaces();
  static CharacterSet word(bool of_python);
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

}  // namespace trireme::text
