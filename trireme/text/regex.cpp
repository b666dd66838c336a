#include "trireme/text/regex.h"

#include <fmt/format.h>

#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/text/regex_program.h"
#include "trireme/text/unicode_classes.h"

namespace trireme::text {
namespace {

using Kind = RegexNode::Kind;
using Greed = RegexNode::Greed;

constexpr int kDeepestMatch = 5000;  // a level takes about 150 bytes of the stack

class Matcher {
 public:
  Matcher(const RegexProgram& program, std::string_view text, int64_t& budget)
      : begin_(text.data()),
        end_(text.data() + text.size()),
        budget_(budget),
        of_python_(program.of_python),
        last_(program.last),
        loops_(size_t(program.num_counters)),
        marks_(size_t(2 * program.num_groups)) {}

  /// Whether `node` and all that follow it match at `at`. If so, the match ends at stop().
  bool match(const RegexNode* node, const char* at) {
    if (++depth_ > kDeepestMatch) throw UsageError("it nests too deep on this text");
    const size_t marked = trail_.size();
    const bool found = walk(node, at);
    --depth_;
    for (; !found && trail_.size() > marked; trail_.pop_back())
      marks_[static_cast<size_t>(trail_.back().mark)] = trail_.back().before;
    return found;
  }
  const char* stop() const { return stop_; }
  /// No match ends there: an empty one has been found there, and Python looks for another that begins there.
  void forbid_end(const char* at) { forbidden_ = at; }
  /// Where groups begin and end; null for a group that took no part.
  const std::vector<const char*>& marks() const { return marks_; }

 private:
  struct Loop {
    int rounds = 0;
    const char* begin = nullptr;  // of the round under way
  };
  struct Marked {  // what is taken back if the way does not lead to a match
    int mark;
    const char* before;
  };

  bool walk(const RegexNode* node, const char* at) {
    while (true) {
      if (--budget_ < 0) throw UsageError("it takes more than linear time on this text");
      switch (node->kind) {
        case Kind::accept:
          if (at == forbidden_ && node == last_) return false;
          stop_ = at;
          return true;
        case Kind::set: {
          if (node->min == 1 && node->max == 1) {
            if (!step(*node->set, at)) return false;
            node = node->next;
            break;
          }
          if (node->next->kind == Kind::accept && node->greed != Greed::lazy) {
            if (take(*node, at) < node->min) return false;
            node = node->next;
            break;
          }
          return repeat(*node, at);
        }
        case Kind::choice: {
          const RegexNode::Branch *branch = node->branches.data(), *last = branch + node->branches.size() - 1;
          for (; branch != last; ++branch)
            if (may_begin(*branch, at) && match(branch->node, at)) return true;
          if (!may_begin(*last, at)) return false;
          node = last->node;
          break;
        }
        case Kind::loop:
          return enter(*node, at);
        case Kind::loop_end:
          return round(*node->body, at);
        case Kind::rounds:
          return rounds(*node, at);
        case Kind::look:
          if (match(node->body, at) == node->negated) return false;
          node = node->next;
          break;
        case Kind::look_behind: {
          const char* from = at;
          int count = 0;
          for (; count < node->length && from != begin_; ++count) from -= character_before(begin_, from).bytes;
          const bool found = count == node->length && match(node->body, from) && stop_ == at;
          if (found == node->negated) return false;
          node = node->next;
          break;
        }
        case Kind::atomic:
          if (!match(node->body, at)) return false;
          at = stop_;
          node = node->next;
          break;
        case Kind::mark:
          trail_.push_back({node->counter, std::exchange(marks_[static_cast<size_t>(node->counter)], at)});
          node = node->next;
          break;
        default:
          if (holds(node->kind, at) == node->negated) return false;
          node = node->next;
      }
    }
  }

  bool may_begin(const RegexNode::Branch& branch, const char* at) const {
    return at == end_ ? branch.first.nullable : branch.first.may_begin(static_cast<unsigned char>(*at));
  }

  bool step(const CharacterSet& set, const char*& at) const {
    if (at == end_) return false;
    const Character c = character_at(at, end_);
    if (!set.has(c.code)) return false;
    at += c.bytes;
    return true;
  }

  int take(const RegexNode& node, const char*& at) {
    int count = 0;
    while (count != node.max && step(*node.set, at)) ++count;
    budget_ -= count;
    return count;
  }

  bool repeat(const RegexNode& node, const char* at) {
    if (node.greed == Greed::lazy) {
      for (int count = 0; count < node.min; ++count)
        if (!step(*node.set, at)) return false;
      for (int count = node.min;; ++count) {
        if (match(node.next, at)) return true;
        if (count == node.max || !step(*node.set, at)) return false;
        --budget_;
      }
    }
    int count = take(node, at);
    if (count < node.min) return false;
    if (node.greed == Greed::possessive) return match(node.next, at);
    while (true) {
      if (match(node.next, at)) return true;
      if (count-- == node.min) return false;
      at -= character_before(begin_, at).bytes;
    }
  }

  bool rounds(const RegexNode& node, const char* at) {
    int count = 0;
    const bool is_set = node.body->kind == Kind::set && node.body->next->kind == Kind::accept;
    const auto one_more = [&] {
      const int64_t before = budget_;
      if (count == node.max || !match(node.body, at)) return false;
      if (is_set) budget_ = before - 1;  // as a character of a set is one step
      at = stop_;
      ++count;
      return true;
    };
    const bool is_lazy = node.greed == Greed::lazy;
    while ((!is_lazy || count < node.min) && one_more()) {
    }
    if (count < node.min) return false;
    if (node.greed == Greed::possessive) return match(node.next, at);
    while (!match(node.next, at)) {
      if (is_lazy ? !one_more() : count-- == node.min) return false;
      for (int i = 0; i < node.length && !is_lazy; ++i) at -= character_before(begin_, at).bytes;
    }
    return true;
  }

  bool enter(const RegexNode& loop, const char* at) {
    Loop& state = loops_[static_cast<size_t>(loop.counter)];
    const Loop outer = state;
    state = {0, nullptr};
    const bool found = again(loop, at);
    state = outer;
    return found;
  }

  bool round(const RegexNode& loop, const char* at) {
    Loop& state = loops_[static_cast<size_t>(loop.counter)];
    // A round that takes nothing would repeat for ever.
    if (state.begin == at && state.rounds >= loop.min) return !of_python_ && match(loop.next, at);
    const Loop before = state;
    ++state.rounds;
    const bool found = again(loop, at);
    state = before;
    return found;
  }

  bool again(const RegexNode& loop, const char* at) {
    Loop& state = loops_[static_cast<size_t>(loop.counter)];
    const auto body = [&] {
      if (loop.max >= 0 && state.rounds >= loop.max) return false;
      const Loop before = state;
      state.begin = at;
      const bool found = match(loop.body, at);
      state = before;
      return found;
    };
    if (state.rounds < loop.min) return body();
    if (loop.greed == Greed::lazy) return match(loop.next, at) || body();
    return body() || match(loop.next, at);
  }

  bool holds(Kind kind, const char* at) const {
    switch (kind) {
      case Kind::text_begin:
        return at == begin_;
      case Kind::text_end:
        return at == end_;
      case Kind::line_begin:
        return at == begin_ || (at[-1] == '\n' && (of_python_ || at != end_));
      case Kind::line_end:
        return at == end_ || *at == '\n';
      case Kind::last_line_end:
        return at == end_ || (*at == '\n' && at + 1 == end_);
      default: {
        const auto is_part = of_python_ ? is_word_of_python : is_word;
        const bool before = at != begin_ && is_part(character_before(begin_, at).code);
        return before != (at != end_ && is_part(character_at(at, end_).code));
      }
    }
  }

  const char *begin_, *end_;
  int64_t& budget_;
  bool of_python_;
  const RegexNode* last_;
  const char* forbidden_ = nullptr;
  std::vector<Loop> loops_;
  std::vector<const char*> marks_;
  std::vector<Marked> trail_;
  const char* stop_ = nullptr;
  int depth_ = 0;
};

}  // namespace

Regex::Regex(std::string_view pattern, RegexSyntax syntax)
    : pattern_(pattern), syntax_(syntax), program_(std::make_unique<RegexProgram>(parse_regex(pattern, syntax))) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

size_t Regex::next_character(std::string_view text, size_t at) {
  return at < text.size() ? at + static_cast<size_t>(character_at(text, at).bytes) : text.size() + 1;
}

std::vector<std::vector<std::string>> Regex::all_groups(std::string_view text) const {
  std::vector<std::vector<std::string>> all;
  Match match{};
  int64_t budget = budget_for(text);
  bool was_empty = false;
  for (size_t at = 0; find(text, at, budget, match, &all.emplace_back(), was_empty);)
    at = match.end, was_empty = match.end == match.begin;
  if (!all.empty() && all.back().empty()) all.pop_back();
  return all;
}

bool Regex::find(std::string_view text, size_t from, int64_t& budget, Match& match, std::vector<std::string>* groups,
                 bool must_advance) const try {
  Matcher matcher(*program_, text, budget);
  if (must_advance) matcher.forbid_end(text.data() + from);
  const char* end = text.data() + text.size();
  for (const char* at = text.data() + from;;) {
    const bool possible =
        at == end ? program_->first.nullable : program_->first.may_begin(static_cast<unsigned char>(*at));
    if (possible && matcher.match(program_->start, at)) {
      match = {static_cast<size_t>(at - text.data()), static_cast<size_t>(matcher.stop() - text.data())};
      if (groups != nullptr) {
        groups->emplace_back(at, matcher.stop());
        for (size_t i = 0; i < matcher.marks().size(); i += 2)
          groups->emplace_back(matcher.marks()[i], matcher.marks()[i + 1]);
      }
      return true;
    }
    if (at == end) return false;
    at += character_at(at, end).bytes;
    --budget;
  }
} catch (const UsageError& error) {
  throw UsageError(fmt::format("the regular expression {} was given up: {}; the {}'s file needs a plainer one",
                               base::shortened(pattern_, 200), error.what(),
                               syntax_ == RegexSyntax::python ? "task" : "tokenizer"));
}

}  // namespace trireme::text
