// Recursive descent into a tree, then linked backwards from the end into nodes.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/text/regex_class_parser.h"
#include "trireme/text/regex_program.h"

namespace trireme::text {
namespace {

using Kind = RegexNode::Kind;
using Greed = RegexNode::Greed;

constexpr size_t kLongestPattern = 4096;
constexpr int kDeepestGroup = 50;
constexpr int kMostRounds = 1000;
constexpr int kLongestBody = 100'000;  // characters, where a length is known

struct Tree {
  enum class Kind { set, sequence, choice, repeat, look, look_behind, atomic, assertion, group };
  Kind kind = Kind::sequence;
  RegexNode::Kind assertion = RegexNode::Kind::accept;
  Greed greed = Greed::greedy;
  bool negated = false;
  int min = 1, max = 1;
  int number = 0;  // of a group
  const CharacterSet* set = nullptr;
  std::vector<Tree> parts;
};

/// What (?i), (?s) and (?m) change.
struct Flags {
  bool ignore_case = false, dot_all = false, multi_line = false;
  bool ignored = false;  // (?u) says what is so anyway
};

class Parser {
 public:
  Parser(std::string_view pattern, RegexSyntax syntax, RegexProgram& program)
      : scan_(pattern, syntax == RegexSyntax::python), program_(program), python_(syntax == RegexSyntax::python) {}

  Tree parse() {
    Tree tree = alternatives(0);
    if (!scan_.done()) scan_.fail("a ) without its (");
    return tree;
  }

 private:
  Tree alternatives(int depth) {
    if (depth > kDeepestGroup) scan_.fail("groups nested more than 50 deep");
    const Flags outer = flags_;
    Tree choice{.kind = Tree::Kind::choice};
    choice.parts.push_back(sequence(depth));
    while (scan_.take("|")) choice.parts.push_back(sequence(depth));
    flags_ = outer;
    if (choice.parts.size() == 1) return std::move(choice.parts[0]);
    return choice;
  }

  Tree sequence(int depth) {
    Tree sequence{.kind = Tree::Kind::sequence};
    while (!scan_.done() && !scan_.sees('|') && !scan_.sees(')')) {
      if (auto part = atom(depth)) sequence.parts.push_back(repeated(*std::move(part)));
    }
    return sequence;
  }

  std::optional<Tree> atom(int depth) {
    if (scan_.sees('(')) return group(depth);
    const bool of_text = python_ && !flags_.multi_line;
    if (scan_.take("^")) return assertion(of_text ? Kind::text_begin : Kind::line_begin);
    if (scan_.take("$")) return assertion(of_text ? Kind::last_line_end : Kind::line_end);
    if (scan_.take("\\A")) return assertion(Kind::text_begin);
    if (scan_.take("\\z")) return assertion(Kind::text_end);
    if (scan_.take("\\Z")) return assertion(python_ ? Kind::text_end : Kind::last_line_end);
    if (scan_.take("\\b")) return assertion(Kind::word_boundary);
    if (scan_.take("\\B")) return assertion(Kind::word_boundary, true);
    if (scan_.sees('*') || scan_.sees('+') || scan_.sees('?')) scan_.fail("a repetition of nothing");
    CharacterSet set = scan_.take(".") ? dot() : parse_character_class(scan_);
    if (flags_.ignore_case) set.ignore_case();
    set.finish();
    program_.sets.push_back(std::move(set));
    return Tree{.kind = Tree::Kind::set, .set = &program_.sets.back()};
  }

  static Tree assertion(Kind kind, bool negated = false) {
    return {.kind = Tree::Kind::assertion, .assertion = kind, .negated = negated};
  }

  CharacterSet dot() const {
    if (!flags_.dot_all) return CharacterSet::everything_but_newline();
    CharacterSet all;
    all.negate();
    return all;
  }

  /// Reads "?i" (in Python's expressions also s, m and u) if a ) or : comes behind it.
  bool take_flags() {
    PatternScanner ahead = scan_;
    if (!ahead.take("?")) return false;
    Flags read = flags_;
    const std::pair<std::string_view, bool*> known[] = {
        {"i", &read.ignore_case}, {"s", &read.dot_all}, {"m", &read.multi_line}, {"u", &read.ignored}};
    int count = 0;
    for (int before = -1; before != count;) {
      before = count;
      for (const auto& [letter, flag] : known)
        if ((python_ || letter == "i") && ahead.take(letter)) *flag = true, ++count;
    }
    if (count == 0 || (!ahead.sees(')') && !ahead.sees(':'))) return false;
    scan_ = ahead, flags_ = read;
    return true;
  }

  std::optional<Tree> group(int depth) {
    scan_.take("(");
    const Flags outer = flags_;
    Tree tree;
    if (take_flags()) {
      if (scan_.take(")")) return std::nullopt;  // for the rest of the group around it
      scan_.take(":");
      tree = alternatives(depth + 1);
    } else if (scan_.take("?:")) {
      tree = alternatives(depth + 1);
    } else if (auto around = look_or_atomic()) {
      tree = *std::move(around);
      tree.parts.push_back(alternatives(depth + 1));
    } else {
      if (scan_.take("?<") || scan_.take("?P<")) scan_.until('>');
      if (scan_.sees('?')) scan_.fail("an unknown kind of group");
      const int number = program_.num_groups;
      if (python_) ++program_.num_groups;
      tree = alternatives(depth + 1);
      if (python_) tree = Tree{.kind = Tree::Kind::group, .number = number, .parts = {std::move(tree)}};
    }
    flags_ = outer;
    if (!scan_.take(")")) scan_.fail("a ( without its )");
    return tree;
  }

  std::optional<Tree> look_or_atomic() {
    using enum Tree::Kind;
    if (scan_.take("?>")) return Tree{.kind = atomic};
    if (scan_.take("?=")) return Tree{.kind = look};
    if (scan_.take("?!")) return Tree{.kind = look, .negated = true};
    if (scan_.take("?<=")) return Tree{.kind = look_behind};
    if (scan_.take("?<!")) return Tree{.kind = look_behind, .negated = true};
    return std::nullopt;
  }

  Tree repeated(Tree tree) {
    while (true) {
      int min = 0, max = -1;
      bool is_interval = false, is_one_number = false;
      if (scan_.take("*")) {
      } else if (scan_.take("+")) {
        min = 1;
      } else if (scan_.take("?")) {
        max = 1;
      } else if (scan_.bounds(min, max, is_one_number)) {
        is_interval = true;
      } else {
        return tree;
      }
      if (min > kMostRounds || max > kMostRounds) scan_.fail("a repetition of more than 1000");
      if (max >= 0 && max < min) scan_.fail("a repetition whose most is below its least");
      // In Oniguruma's syntax x{1,3}+ is (?:x{1,3})+, and x{2}? is (?:x{2})?; x{2,2}? is lazy.
      const bool takes_lazy = python_ || !is_one_number, takes_possessive = python_ || !is_interval;
      const Greed greed = takes_lazy && scan_.take("?")         ? Greed::lazy
                          : takes_possessive && scan_.take("+") ? Greed::possessive
                                                                : Greed::greedy;
      Tree outer{.kind = Tree::Kind::repeat, .greed = greed, .min = min, .max = max};
      outer.parts.push_back(std::move(tree));
      tree = std::move(outer);
    }
  }

  PatternScanner scan_;
  RegexProgram& program_;
  bool python_;
  Flags flags_;
};

class Linker {
 public:
  explicit Linker(RegexProgram& program) : program_(program) {}

  const RegexNode* link(const Tree& tree, const RegexNode* next) {
    switch (tree.kind) {
      case Tree::Kind::set:
        return node({.kind = Kind::set, .set = tree.set, .next = next});
      case Tree::Kind::sequence:
        for (size_t i = tree.parts.size(); i-- > 0;) next = link(tree.parts[i], next);
        return next;
      case Tree::Kind::choice:
        return choice(tree, next);
      case Tree::Kind::repeat:
        return repeat(tree, next);
      case Tree::Kind::assertion:
        return node({.kind = tree.assertion, .negated = tree.negated, .next = next});
      case Tree::Kind::look:
        return around(Kind::look, tree, 0, next);
      case Tree::Kind::atomic:
        return around(Kind::atomic, tree, 0, next);
      case Tree::Kind::group: {
        const RegexNode* end = node({.kind = Kind::mark, .counter = 2 * tree.number + 1, .next = next});
        return node({.kind = Kind::mark, .counter = 2 * tree.number, .next = link(tree.parts[0], end)});
      }
      case Tree::Kind::look_behind:
        const auto length = length_of(tree.parts[0]);
        if (!length) throw UsageError("look-behind of varying length is not understood");
        return around(Kind::look_behind, tree, *length, next);
    }
    return next;
  }

  // What may begin at `at`. Loops are followed once: their nodes are already complete when they are asked.
  static FirstBytes first_of(const RegexNode* at) {
    switch (at->kind) {
      case Kind::set: {
        FirstBytes first{at->set->ascii_low(), at->set->ascii_high(), false};
        return at->min > 0 ? first : either(first, first_of(at->next));
      }
      case Kind::choice: {
        FirstBytes first;
        for (const auto& branch : at->branches) first = either(first, branch.first);
        return first;
      }
      case Kind::atomic: {
        const FirstBytes first = first_of(at->body);
        return first.nullable ? FirstBytes{.nullable = true} : first;
      }
      case Kind::loop:
      case Kind::loop_end:
      case Kind::rounds:
      case Kind::accept:
        return {.nullable = true};
      default:
        return first_of(at->next);
    }
  }

 private:
  static FirstBytes either(FirstBytes a, FirstBytes b) {
    return {a.low | b.low, a.high | b.high, a.nullable || b.nullable};
  }

  static std::optional<int> length_of(const Tree& tree) {
    int total = 0;
    switch (tree.kind) {
      case Tree::Kind::set:
        return 1;
      case Tree::Kind::sequence:
        for (const Tree& part : tree.parts) {
          const auto length = length_of(part);
          if (!length) return std::nullopt;
          total += *length;
        }
        return total;
      case Tree::Kind::choice: {
        const auto length = length_of(tree.parts[0]);
        for (const Tree& part : tree.parts)
          if (length_of(part) != length) return std::nullopt;
        return length;
      }
      case Tree::Kind::repeat: {
        const auto length = length_of(tree.parts[0]);
        if (!length || tree.min != tree.max || *length > kLongestBody / std::max(1, tree.min)) return std::nullopt;
        return *length * tree.min;
      }
      case Tree::Kind::atomic:
      case Tree::Kind::group:
        return length_of(tree.parts[0]);
      default:
        return 0;
    }
  }

  static bool has_group(const Tree& tree) {
    return tree.kind == Tree::Kind::group || std::ranges::any_of(tree.parts, has_group);
  }

  const RegexNode* around(Kind kind, const Tree& tree, int length, const RegexNode* next) {
    const RegexNode* body = link(tree.parts[0], node({.kind = Kind::accept}));
    return node({.kind = kind, .negated = tree.negated, .length = length, .body = body, .next = next});
  }

  const RegexNode* choice(const Tree& tree, const RegexNode* next) {
    RegexNode made{.kind = Kind::choice};
    for (const Tree& part : tree.parts) {
      const RegexNode* branch = link(part, next);
      made.branches.push_back({branch, first_of(branch)});
    }
    return node(std::move(made));
  }

  const RegexNode* repeat(const Tree& tree, const RegexNode* next) {
    const Tree& inner = tree.parts[0];
    if (inner.kind == Tree::Kind::set)
      return node(
          {.kind = Kind::set, .greed = tree.greed, .min = tree.min, .max = tree.max, .set = inner.set, .next = next});
    // A round has only one end, so none is tried again, and rounds need not nest. Groups of the last round are kept.
    if (const int length = length_of(inner).value_or(0); length > 0 && !has_group(inner))
      return node({.kind = Kind::rounds,
                   .greed = tree.greed,
                   .min = tree.min,
                   .max = tree.max,
                   .length = length,
                   .body = link(inner, node({.kind = Kind::accept})),
                   .next = next});
    if (tree.greed == Greed::possessive) {
      Tree greedy = tree;
      greedy.greed = Greed::greedy;
      const RegexNode* body = link(greedy, node({.kind = Kind::accept}));
      return node({.kind = Kind::atomic, .body = body, .next = next});
    }
    RegexNode* loop = node({.kind = Kind::loop,
                            .greed = tree.greed,
                            .min = tree.min,
                            .max = tree.max,
                            .counter = program_.num_counters++,
                            .next = next});
    loop->body = link(inner, node({.kind = Kind::loop_end, .body = loop}));
    return loop;
  }

  RegexNode* node(RegexNode made) {
    if (program_.nodes.size() > 20'000) throw UsageError("it has too many parts");
    program_.nodes.push_back(std::move(made));
    return &program_.nodes.back();
  }

  RegexProgram& program_;
};

}  // namespace

RegexProgram parse_regex(std::string_view pattern, RegexSyntax syntax) try {
  if (pattern.size() > kLongestPattern) throw UsageError("it is longer than 4096 bytes");
  if (!is_utf8(pattern)) throw UsageError("it is not UTF-8");
  RegexProgram program;
  program.of_python = syntax == RegexSyntax::python;
  const Tree tree = Parser(pattern, syntax, program).parse();
  Linker linker(program);
  program.nodes.push_back({.kind = Kind::accept});
  program.last = &program.nodes.back();
  program.start = linker.link(tree, program.last);
  program.first = Linker::first_of(program.start);
  return program;
} catch (const UsageError& error) {
  throw UsageError(
      fmt::format("the regular expression {} cannot be used: {}", base::shortened(pattern, 200), error.what()));
}

}  // namespace trireme::text
