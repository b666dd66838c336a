#include "trireme/train/answer_match.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/text/normalizer.h"
#include "trireme/text/utf8.h"

namespace trireme::train {
namespace {

std::string search(const AnswerFilter::Step& step, const std::string& text) {
  const std::vector<std::vector<std::string>> matches = step.regex->all_groups(text);
  const int64_t count = std::ssize(matches), at = step.group_select < 0 ? count + step.group_select : step.group_select;
  if (at < 0 || at >= count) return step.fallback;
  const std::vector<std::string>& match = matches[static_cast<size_t>(at)];
  if (match.size() <= 2) return text::stripped(match.back());  // the match or its one group
  const auto group = std::ranges::find_if(match.begin() + 1, match.end(), [](const auto& g) { return !g.empty(); });
  return text::stripped(group == match.end() ? step.fallback : *group);
}

std::string without(const text::Regex& regex, const std::string& text) {
  std::string left;
  size_t end = 0;
  regex.for_each_match(text, [&](const text::Regex::Match& match) {
    left.append(text, end, match.begin - end);
    end = match.end;
  });
  return left.append(text, end);
}

std::string compared(const ExactMatch& match, std::string text) {
  const auto is_punctuation = [](char c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  };
  for (const text::Regex& regex : match.regexes_to_ignore) text = without(regex, text);
  if (match.ignore_case) text = text::to_lower(text);
  if (match.ignore_punctuation) std::erase_if(text, is_punctuation);
  if (match.ignore_numbers) std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

}  // namespace

std::string filtered(const AnswerFilter& filter, std::string_view text) {
  std::string answer(text);
  for (const AnswerFilter::Step& step : filter.steps)
    answer = step.regex ? search(step, answer) : text::stripped(answer);
  return answer;
}

bool matches_exactly(const ExactMatch& match, const std::string& answer, const std::vector<std::string>& targets) {
  const std::string given = compared(match, answer);
  return std::ranges::any_of(targets, [&](const std::string& target) { return compared(match, target) == given; });
}

JudgedAnswer judge_answer(const AnswerFilter& filter, const ExactMatch& match, std::string_view text,
                          const std::vector<std::string>& targets) try {
  const std::string answer = filtered(filter, text);
  return {.answer = answer, .is_right = matches_exactly(match, answer, targets)};
} catch (const UsageError& error) {
  return {.given_up = error.what()};
}

}  // namespace trireme::train
