// What a regular expression becomes: nodes linked by `next`, so that matching a node means matching all that follows
// it. regex_parse.cpp makes programs, regex.cpp runs them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "trireme/data/regex_set.h"

namespace trireme::data {

/// The bytes below 0x80 that something may begin with; any other byte always may.
struct FirstBytes {
  uint64_t low = 0, high = 0;
  bool nullable = false;  ///< may match without taking a byte: then any byte may follow
  bool may_begin(unsigned char byte) const {
    if (nullable || byte >= 0x80) return true;
    return ((byte < 64 ? low >> byte : high >> (byte - 64)) & 1) != 0;
  }
};

struct RegexNode {
  enum class Kind : uint8_t {
    accept,      ///< the end of the expression, a look-around or an atomic group
    set,         ///< min..max characters of `set`
    choice,      ///< one of `branches`, each of which goes on with what follows
    loop,        ///< `body` min..max times; the body ends in this node's `loop_end`
    loop_end,    ///< counts a round of `body`, which is the loop
    look,        ///< `body` matches here (or not, when `negated`)
    look_behind, ///< `body`, `length` characters long, matches just before
    atomic,      ///< `body`, of which only the first match counts
    text_begin,
    text_end,
    line_begin,
    line_end,
    last_line_end,
    word_boundary,
  };
  enum class Greed : uint8_t { greedy, lazy, possessive };

  struct Branch {
    const RegexNode* node;
    FirstBytes first;
  };

  Kind kind = Kind::accept;
  Greed greed = Greed::greedy;
  bool negated = false;
  int min = 1, max = 1;  ///< max -1: any number
  int length = 0;
  int counter = 0;  ///< index of a loop's counter
  const CharacterSet* set = nullptr;
  const RegexNode* body = nullptr;
  const RegexNode* next = nullptr;
  std::vector<Branch> branches;
};

struct RegexProgram {
  std::deque<RegexNode> nodes;
  std::deque<CharacterSet> sets;
  const RegexNode* start = nullptr;
  FirstBytes first;
  int num_counters = 0;
};

/// Errors    UsageError
RegexProgram parse_regex(std::string_view pattern);

}  // namespace trireme::data
