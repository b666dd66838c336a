// A parsed regular expression: nodes linked by `next`. Matching a node means matching it and all nodes that follow.
// regex_parse.cpp makes programs, regex.cpp runs them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "trireme/text/regex.h"
#include "trireme/text/regex_set.h"

namespace trireme::text {

/// The bytes below 0x80 that a match may begin with; any other byte always may begin one.
struct FirstBytes {
  uint64_t low = 0, high = 0;  ///< bit b of low: byte b; of high: byte 64 + b
  bool nullable = false;  ///< the match may be empty, so any byte may come next
  bool may_begin(unsigned char byte) const {
    if (nullable || byte >= 0x80) return true;
    return ((byte < 64 ? low >> byte : high >> (byte - 64)) & 1) != 0;
  }
};

struct RegexNode {
  enum class Kind : uint8_t {
    accept,      ///< the end of the expression, of a look-around or of an atomic group
    set,         ///< min..max characters of `set`
    choice,      ///< one of `branches`; each of them leads on to what follows
    loop,        ///< `body` min..max times; the body ends in this node's `loop_end`
    loop_end,    ///< ends a round of the loop; `body` is the loop's node
    rounds,      ///< `body`, always `length` characters long, min..max times; it ends in `accept`
    look,        ///< `body` matches here (or not, when `negated`)
    look_behind, ///< `body`, `length` characters long, matches the text just before
    atomic,      ///< `body`; only its first match counts
    text_begin,
    text_end,
    line_begin,
    line_end,
    last_line_end,
    word_boundary,
    mark,  ///< a group begins (`counter` 2 x its number) or ends (one more) here
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
  int counter = 0;  ///< index of a loop's counter, or of a mark
  const CharacterSet* set = nullptr;
  const RegexNode* body = nullptr;
  const RegexNode* next = nullptr;
  std::vector<Branch> branches;
};

struct RegexProgram {
  std::deque<RegexNode> nodes;
  std::deque<CharacterSet> sets;
  const RegexNode *start = nullptr, *last = nullptr;
  FirstBytes first;
  int num_counters = 0;
  int num_groups = 0;  ///< whose text is kept, in Python's expressions
  bool of_python = false;  ///< what \b and ^ mean
};

/// Errors    UsageError
RegexProgram parse_regex(std::string_view pattern, RegexSyntax syntax);

}  // namespace trireme::text
