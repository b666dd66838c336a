#include "trireme/rewards/reward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/base/units.h"
#include "trireme/rewards/program.h"
#include "trireme/text/regex.h"

namespace trireme::rewards {
namespace {

std::string stripped(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kBlank) - begin + 1));
}

std::string place_of(const Answer& answer) {
  return answer.place.empty() ? fmt::format("the line of prompt {}", answer.prompt_number) : answer.place;
}

// A text, a number, or true or false. An answer cannot equal a list, a map or null.
std::optional<std::string> right_answer_in(const nlohmann::json& row, const RewardSettings& s) {
  const auto found = row.find(s.answer_key);
  if (found == row.end() || found->is_null() || found->is_structured()) return std::nullopt;
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::string right_answer(const Answer& answer, const RewardSettings& s) {
  if (const auto found = right_answer_in(*answer.row, s)) return *found;
  const auto found = answer.row->find(s.answer_key);
  throw Failure(
      found == answer.row->end()
          ? fmt::format("{} has no key \"{}\"; name another one with reward.answer_key", place_of(answer), s.answer_key)
          : fmt::format("{} has {} under \"{}\", and an answer is compared with a text or a number", place_of(answer),
                        found->is_null()    ? "null"
                        : found->is_array() ? "a list"
                                            : "a map",
                        s.answer_key));
}

constexpr std::string_view kDigits = "0123456789";

// tunix's: the first digits and points.
std::optional<std::string> first_number_in(std::string_view text) {
  constexpr std::string_view kNumber = "0123456789.";
  const size_t begin = text.find_first_of(kNumber);
  if (begin == std::string_view::npos) return std::nullopt;
  return std::string(text.substr(begin, text.find_first_not_of(kNumber, begin) - begin));
}

// Points end sentences, too: "so it is...46", "see No.46". One is a part of the number behind it if it follows a digit,
// or what a number without a whole part follows.
std::optional<std::string> last_number_in(std::string_view text) {
  constexpr std::string_view kBeforePoint = " \t\r\n\f\v+-=~<>(:*/$[{";
  const size_t last = text.find_last_of(kDigits);
  if (last == std::string_view::npos) return std::nullopt;
  const auto first_digit = [&](size_t at) {
    while (at > 0 && kDigits.find(text[at - 1]) != std::string_view::npos) --at;
    return at;
  };
  size_t begin = first_digit(last);
  // An exponent: 1e5, 3.2E-4.
  const size_t sign = begin > 0 && (text[begin - 1] == '+' || text[begin - 1] == '-') ? begin - 1 : begin;
  if (sign > 1 && (text[sign - 1] == 'e' || text[sign - 1] == 'E') && first_digit(sign - 1) < sign - 1)
    begin = first_digit(sign - 1);
  if (begin > 0 && text[begin - 1] == '.') {
    const size_t point = begin - 1, whole = first_digit(point);
    if (whole < point || point == 0 || kBeforePoint.find(text[point - 1]) != std::string_view::npos) begin = whole;
  }
  if (begin > 0 && text[begin - 1] == '-') --begin;
  return std::string(text.substr(begin, last + 1 - begin));
}

// "1,234 of 2,000,000" -> "1234 of 2000000": a comma goes if it stands between a digit and exactly three digits.
std::string without_thousands(std::string_view text) {
  const auto is_digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool separates = text[i] == ',' && i > 0 && is_digit(i - 1) && is_digit(i + 1) && is_digit(i + 2) &&
                           is_digit(i + 3) && !is_digit(i + 4);
    if (!separates) plain += text[i];
  }
  return plain;
}

double exact(const Answer& a, const RewardSettings& s) {
  return stripped(a.completion) == stripped(right_answer(a, s)) ? 1 : 0;
}

std::optional<double> number_of(std::string_view right_answer) {
  return base::parse_number(without_thousands(stripped(right_answer)));
}

double number(const Answer& a, const RewardSettings& s) {
  const std::optional<double> right = number_of(right_answer(a, s));
  if (!right)
    throw Failure(fmt::format("{}: \"{}\" is no number; take the reward exact for texts", place_of(a), s.answer_key));
  const std::optional<std::string> text = last_number_in(without_thousands(a.completion));
  const std::optional<double> found = text ? base::parse_number(*text) : std::nullopt;
  return found && std::abs(*found - *right) <= s.tolerance ? 1 : 0;
}

double length(const Answer& a, const RewardSettings& s) {
  const auto best = double(*s.length);
  return std::max(-1.0, 1 - std::abs(double(a.tokens) - best) / best);
}

// google/tunix's rewards for GSM8K: <reasoning>...</reasoning>...<answer>...</answer>. They search for
//   ^[\s]*<reasoning>.+?</reasoning>.*?<answer>(.+?)</answer>[\s]*$
// where ^ and $ are the ends of lines, and a point is any character.
constexpr std::array<std::string_view, 4> kTags = {"<reasoning>", "</reasoning>", "<answer>", "</answer>"};

constexpr std::string_view kBlankInLine = " \t\r\f\v";

bool begins_line(std::string_view text, size_t at) {
  const size_t before = text.substr(0, at).find_last_not_of(kBlankInLine);
  return before == std::string_view::npos || text[before] == '\n';
}

bool ends_line(std::string_view text, size_t at) {
  const size_t behind = text.find_first_not_of(kBlankInLine, at);
  return behind == std::string_view::npos || text[behind] == '\n';
}

// The place of the first tag of number i from `from` on that counts: the first of all begins a line, the last ends one.
size_t find_tag(std::string_view text, size_t i, size_t from) {
  size_t at = text.find(kTags[i], from);
  while (at != std::string_view::npos &&
         ((i == 0 && !begins_line(text, at)) || (i == 3 && !ends_line(text, at + kTags[i].size()))))
    at = text.find(kTags[i], at + kTags[i].size());
  return at;
}

// What stands between the tags of the answer, if all tags come in their order with something between each pair. The
// first place of each tag is the one to take: from a later one no tag is found that this one would miss.
std::optional<std::string> between_tags(std::string_view text) {
  size_t at = 0, begin = 0;
  for (size_t i = 0; i < kTags.size(); ++i) {
    const size_t least = i % 2 == 1 ? at + 1 : at;  // something stands between
    if (least > text.size()) return std::nullopt;
    const size_t found = find_tag(text, i, least);
    if (found == std::string_view::npos) return std::nullopt;
    if (i == 3) return std::string(text.substr(begin, found - begin));
    at = found + kTags[i].size();
    begin = at;
  }
  return std::nullopt;
}

double match_format_exactly(const Answer& a, const RewardSettings&) { return between_tags(a.completion) ? 3 : 0; }

double match_format_approximately(const Answer& a, const RewardSettings&) {
  double score = 0;
  for (const std::string_view tag : kTags) {
    int count = 0;
    for (size_t at = a.completion.find(tag); at != std::string::npos; at = a.completion.find(tag, at + tag.size()))
      ++count;
    score += count == 1 ? 0.5 : -0.5;
  }
  return score;
}

double check_answer(const Answer& a, const RewardSettings& s) {
  const std::optional<std::string> guess = between_tags(a.completion);
  if (!guess) return 0;
  const std::string right = right_answer(a, s);
  if (*guess == right) return 3;
  if (stripped(*guess) == stripped(right)) return 1.5;
  const std::optional<double> x = base::parse_number(stripped(*guess)), y = base::parse_number(stripped(right));
  if (!x || !y || *y == 0) return -0.5;
  const double ratio = *x / *y;
  return ratio >= 0.9 && ratio <= 1.1 ? 0.5 : ratio >= 0.8 && ratio <= 1.2 ? 0.25 : -1;
}

double check_numbers(const Answer& a, const RewardSettings& s) {
  const size_t tag = a.completion.find(kTags[2]);
  if (tag == std::string::npos) return 0;
  const std::optional<std::string> text = first_number_in(std::string_view(a.completion).substr(tag + kTags[2].size()));
  const std::optional<double> found = text ? base::parse_number(*text) : std::nullopt,
                              right = base::parse_number(stripped(right_answer(a, s)));
  return found && right && *found == *right ? 1.5 : 0;
}

struct Row {
  std::string_view name;
  double (*of)(const Answer&, const RewardSettings&);
};
constexpr std::array kRows = {Row{"exact", exact},
                              Row{"number", number},
                              Row{"length", length},
                              Row{"match_format_exactly", match_format_exactly},
                              Row{"match_format_approximately", match_format_approximately},
                              Row{"check_answer", check_answer},
                              Row{"check_numbers", check_numbers}};

std::shared_ptr<const text::Regex> expression_of(const RewardSettings& s) try {
  return std::make_shared<const text::Regex>(s.pattern.value_or(""));
} catch (const UsageError& error) {
  throw UsageError(fmt::format("reward.pattern: {}", error.what()));
}

Function::Call call_of(const std::string& name, const RewardSettings& s) {
  if (name == "format") {
    auto expression = expression_of(s);
    return [expression](std::span<const Answer> answers, int64_t) {
      Scores scores;
      for (const Answer& answer : answers) {
        bool found = false;
        try {
          expression->for_each_match(answer.completion, [&](const text::Regex::Match&) { found = true; });
        } catch (const UsageError& error) {
          throw Failure(fmt::format("reward.pattern: {}", error.what()));
        }
        scores.emplace_back(found ? 1 : 0);
      }
      return scores;
    };
  }
  const auto row = std::ranges::find(kRows, name, &Row::name);
  check_invariant(row != kRows.end(), "reward.functions has known names");
  return [of = row->of, s](std::span<const Answer> answers, int64_t) {
    Scores scores;
    for (const Answer& answer : answers) scores.emplace_back(of(answer, s));
    return scores;
  };
}

}  // namespace

bool has_right_answer(std::string_view reward, const nlohmann::json& row, const RewardSettings& s) {
  const std::optional<std::string> right = right_answer_in(row, s);
  return right && (reward != "number" || number_of(*right));
}

std::vector<Weighted> make_rewards(const RewardSettings& s) {
  if (!s.functions || s.functions->empty())
    throw UsageError("no reward is named; give --reward.functions, for instance [exact]");
  const std::vector<double> weights = reward_weights(s);
  std::vector<Weighted> rewards;
  for (size_t i = 0; i < s.functions->size(); ++i) {
    const std::string& name = (*s.functions)[i];
    if (name == "command") {
      rewards.push_back({weights[i], std::make_unique<ProgramReward>(s)});
      continue;
    }
    rewards.push_back({weights[i], std::make_unique<Function>(name, call_of(name, s))});
  }
  return rewards;
}

}  // namespace trireme::rewards
