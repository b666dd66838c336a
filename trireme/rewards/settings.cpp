#include "trireme/rewards/settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/problems.h"

namespace trireme::rewards {

using config::Resumed;
using config::Rules;

std::vector<std::string> reward_names() {
  return {"exact",        "number",        "format", "length", "match_format_exactly", "match_format_approximately",
          "check_answer", "check_numbers", "command"};
}

bool reads_answer(std::string_view reward) {
  constexpr std::string_view kReaders[] = {"exact", "number", "check_answer", "check_numbers"};
  return std::ranges::find(kReaders, reward) != std::end(kReaders);
}

std::vector<double> reward_weights(const RewardSettings& s) {
  std::vector<double> weights;
  for (size_t i = 0; s.functions && i < s.functions->size(); ++i)
    weights.push_back(s.weights && i < s.weights->size() ? base::parse_number((*s.weights)[i]).value_or(1) : 1);
  return weights;
}

namespace {

void check(const RewardSettings& s, config::Problems& problems) {
  const std::vector<std::string> functions = s.functions.value_or(std::vector<std::string>{});
  const auto uses = [&](std::string_view name) { return std::ranges::find(functions, name) != functions.end(); };
  if (s.weights && s.weights->size() != functions.size())
    problems.add(fmt::format("reward.weights has {}, but reward.functions names {}",
                             base::plural(std::ssize(*s.weights), "number"), functions.size()),
                 {}, "give one weight for each function, or leave reward.weights out: all count alike");
  for (const std::string& weight : s.weights.value_or(std::vector<std::string>{}))
    if (!base::parse_number(weight))
      problems.add(fmt::format("reward.weights has {}, which is no number", weight), {},
                   "give numbers, as in [1, 0.5]");
  const auto is_zero = [](const std::string& weight) { return base::parse_number(weight) == 0.0; };
  if (s.weights && !s.weights->empty() && std::ranges::all_of(*s.weights, is_zero))
    problems.add("all of reward.weights are 0, so all answers have the same reward", {},
                 "give one function a weight other than 0");
  if (uses("format") && !s.pattern)
    problems.add("the reward format needs an expression", {}, "give reward.pattern, for instance \"^<b>.+</b>$\"");
  if (uses("command") && (!s.command || s.command->empty()))
    problems.add("the reward command needs a program", {}, "give reward.command, for instance [python3, judge.py]");
  if (uses("length") && !s.length)
    problems.add("the reward length needs a length", {}, "give reward.length in tokens, for instance 100");
}

}  // namespace

config::Section section(RewardSettings& s) {
  return {.name = "reward",
          .title = "what answers are worth",
          .resumed = Resumed::learned,
          .rows = {{"reward.functions", &s.functions, "functions that judge answers, summed (docs/rewards.md)",
                    Rules{.absent = "none", .classes = reward_names(), .example = "[exact]"}},
                   {"reward.weights", &s.weights, "how often each of them counts",
                    Rules{.absent = "null", .when_absent = "all count alike", .example = "[1, 0.5]"}},
                   {"reward.answer_key", &s.answer_key, "key of the right answer in a line of the file of prompts"},
                   {"reward.tolerance", &s.tolerance, "how far a number may be from the right one (number)",
                    Rules{.at_least = 0}},
                   {"reward.pattern", &s.pattern, "expression that occurs in an answer of the right form (format)",
                    Rules{.absent = "none", .example = "<b>.+</b>"}},
                   {"reward.length", &s.length, "the best length of an answer (length)",
                    Rules{.unit = "tokens", .at_least = 1, .absent = "none", .example = "100"}},
                   {"reward.command", &s.command,
                    "program that judges answers, with its arguments: JSON lines in, a number a line out (command)",
                    Rules{.absent = "none", .example = "[python3, judge.py]"}},
                   {"reward.command_timeout", &s.command_timeout, "time that it has for the answers to one prompt",
                    Rules{.above = 0}},
                   {"reward.command_memory", &s.command_memory, "memory that it may have",
                    Rules{.unit = "bytes",
                          .at_least = 1,
                          .bytes = true,
                          .absent = "none",
                          .when_absent = "no limit",
                          .example = "2GiB"}}},
          .check = [&s](config::Problems& problems) { check(s, problems); }};
}

}  // namespace trireme::rewards
