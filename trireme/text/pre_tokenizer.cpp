#include "trireme/text/pre_tokenizer.h"

#include <utility>

#include "trireme/text/byte_alphabet.h"
#include "trireme/text/normalizer.h"

namespace trireme::text {
namespace {

using Behavior = SplitStep::Behavior;

template <typename Take>
void for_each_literal(std::string_view text, std::string_view what, Take take) {
  if (what.empty()) return;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size()))
    take(Regex::Match{at, at + what.size()});
}

template <typename Take>
void for_each_member(std::string_view text, const CharacterSet& set, Take take) {
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    const auto begin = static_cast<size_t>(bytes.data() - text.data());
    if (set.has(code)) take(Regex::Match{begin, begin + bytes.size()});
  });
}

// Hands out matches and the text between them, in order, each with whether it is a match.
template <typename Take>
void for_each_section(const SplitStep& step, std::string_view text, Take take) {
  size_t done = 0;
  bool is_first = true;
  const auto section = [&](const Regex::Match& match) {
    // As in PyPI's tokenizers, where a match ends no empty one begins.
    if (!std::exchange(is_first, false) && match.begin == done && match.end == done) return;
    if (match.begin > done) take(text.substr(done, match.begin - done), step.invert);
    take(text.substr(match.begin, match.end - match.begin), !step.invert);  // perhaps an empty one
    done = match.end;
  };
  if (const auto* regex = std::get_if<Regex>(&step.pattern)) {
    regex->for_each_match(text, section);
  } else if (const auto* set = std::get_if<CharacterSet>(&step.pattern)) {
    for_each_member(text, *set, section);
  } else {
    for_each_literal(text, std::get<std::string>(step.pattern), section);
  }
  if (done < text.size()) take(text.substr(done), step.invert);
}

// Joins sections to pieces as `behavior` says. Sections that are joined are neighbours, so a piece is a view too.
class Joiner {
 public:
  Joiner(Behavior behavior, const std::function<void(std::string_view)>& take) : behavior_(behavior), take_(take) {}
  Joiner(Behavior behavior, const std::function<void(std::string_view)>&& take) = delete;  // it has to stay

  void section(std::string_view text, bool is_match) {
    if (text.empty()) {  // is no piece, but stands between two
      const bool ends_one = behavior_ == Behavior::contiguous || behavior_ == Behavior::merged_with_next ||
                            (behavior_ == Behavior::merged_with_previous && !is_match);
      if (ends_one) join_if(false, text);
      waiting_is_match_ = is_match;
      return;
    }
    switch (behavior_) {
      case Behavior::removed:
        if (!is_match) take_(text);
        return;
      case Behavior::isolated:
        take_(text);
        return;
      case Behavior::contiguous:
        join_if(!waiting_.empty() && is_match == waiting_is_match_, text);
        break;
      case Behavior::merged_with_previous:
        join_if(is_match && !waiting_is_match_ && !waiting_.empty(), text);
        break;
      case Behavior::merged_with_next:
        join_if(!is_match && waiting_is_match_ && !waiting_.empty(), text);
        break;
    }
    waiting_is_match_ = is_match;
  }
  void finish() {
    if (!waiting_.empty()) take_(waiting_);
  }

 private:
  void join_if(bool join, std::string_view text) {
    if (join) {
      waiting_ = {waiting_.data(), waiting_.size() + text.size()};
      return;
    }
    finish();
    waiting_ = text;
  }

  Behavior behavior_;
  const std::function<void(std::string_view)>& take_;
  std::string_view waiting_;
  bool waiting_is_match_ = false;
};

void split(const SplitStep& step, std::string_view text, const std::function<void(std::string_view)>& take) {
  if (step.behavior == Behavior::isolated) {  // the way of all byte-level tokenizers
    for_each_section(step, text, [&](std::string_view part, bool) {
      if (!part.empty()) take(part);
    });
    return;
  }
  Joiner joiner(step.behavior, take);
  for_each_section(step, text, [&](std::string_view part, bool is_match) { joiner.section(part, is_match); });
  joiner.finish();
}

}  // namespace

void PreTokenizer::run_from(size_t index, std::string_view piece, TextBefore before, const Take& take) const {
  if (piece.empty()) return;
  if (index == steps_.size()) {
    take(piece);
    return;
  }
  const auto go_on = [&](std::string_view part) {
    run_from(index + 1, part, part.data() == piece.data() ? before : TextBefore::token, take);
  };
  const PreTokenizerStep& step = steps_[index];
  if (const auto* cut = std::get_if<SplitStep>(&step)) {
    index + 1 == steps_.size() ? split(*cut, piece, take) : split(*cut, piece, go_on);
  } else if (std::holds_alternative<PrefixSpaceStep>(step)) {
    std::string text(before != TextBefore::text && !piece.starts_with(' ') ? " " : "");
    text += piece;
    run_from(index + 1, text, before, take);
  } else if (std::holds_alternative<ByteLettersStep>(step)) {
    run_from(index + 1, to_byte_letters(piece), before, take);
  } else {
    const auto& space = std::get<MetaspaceStep>(step);
    std::string text = replace_all(piece, " ", space.replacement);
    using enum MetaspaceStep::Prepend;
    const bool prepend =
        before == TextBefore::nothing ? space.prepend != never : before == TextBefore::token && space.prepend == always;
    if (prepend && !text.starts_with(space.replacement)) text.insert(0, space.replacement);
    const Take rest = [&](std::string_view part) {
      run_from(index + 1, part, part.data() == text.data() ? before : TextBefore::token, take);
    };
    if (!space.split) return rest(text);
    Joiner joiner(Behavior::merged_with_next, rest);
    size_t done = 0;
    for_each_literal(text, space.replacement, [&](const Regex::Match& match) {
      if (match.begin > done) joiner.section(std::string_view(text).substr(done, match.begin - done), false);
      joiner.section(std::string_view(text).substr(match.begin, match.end - match.begin), true);
      done = match.end;
    });
    if (done < text.size()) joiner.section(std::string_view(text).substr(done), false);
    joiner.finish();
  }
}

}  // namespace trireme::text
