// How a written answer is judged: filters that take the answer out of a text, and exact match, as lm-evaluation-harness
// has them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/text/regex.h"

namespace trireme::train {

/// Steps, one after the other, to an answer. A step searches its expression, or cuts off space at both ends.
struct AnswerFilter {
  struct Step {
    std::optional<text::Regex> regex = {};
    int64_t group_select = 0;  ///< which match counts, from the last one on if negative
    std::string fallback = "[invalid]";  ///< the answer of a text without a match
  };
  std::string name = "none";
  std::vector<Step> steps = {};
};

/// Of a match, the first group that is not empty counts; of an expression without groups, the match.
/// Errors    UsageError if an expression takes too long
std::string filtered(const AnswerFilter& filter, std::string_view text);

/// What is left out before an answer and its target are compared. It is left out of both, in this order.
struct ExactMatch {
  std::vector<text::Regex> regexes_to_ignore = {};
  bool ignore_case = false;
  bool ignore_punctuation = false;  ///< of ASCII
  bool ignore_numbers = false;  ///< digits of ASCII
};

/// The answer is one of the targets.
/// Errors    as above
bool matches_exactly(const ExactMatch& match, const std::string& answer, const std::vector<std::string>& targets);

/// What becomes of a text. An expression that takes too long ends no evaluation: the text counts as wrong.
struct JudgedAnswer {
  std::string answer = {};
  bool is_right = false;
  std::string given_up = {};  ///< why it is not known
};
JudgedAnswer judge_answer(const AnswerFilter& filter, const ExactMatch& match, std::string_view text,
                          const std::vector<std::string>& targets);

}  // namespace trireme::train
