#include "trireme/train/rollout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/config/report.h"
#include "trireme/settings/settings.h"

namespace trireme::train {

using nlohmann::json;

namespace {

json numbers(const std::vector<double>& values) {
  json list = json::array();
  for (const double value : values) list.push_back(std::isnan(value) ? json(nullptr) : json(value));
  return list;
}

std::vector<double> numbers_of(const json& list) {
  std::vector<double> values;
  for (const json& value : list) values.push_back(value.is_null() ? kLeftOut : value.get<double>());
  return values;
}

double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

// With one degree of freedom less; 0 for one value.
double deviation_of(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / double(values.size() - 1));
}

std::vector<double> rewards_of(const RolloutGroup& group) {
  std::vector<double> rewards;
  for (const RolloutAnswer& answer : group.answers)
    if (answer.reward) rewards.push_back(*answer.reward);
  return rewards;
}

int64_t places_of(const RolloutGroup& group, const RolloutAnswer& answer) {
  return std::ssize(group.tokens) + std::ssize(answer.tokens) - 1;
}

int64_t stepped(int64_t places) { return (places + kDocumentStep - 1) / kDocumentStep * kDocumentStep; }

// Documents of `places` places in a row.
int64_t documents_of_row(int64_t row_tokens, int64_t places) {
  return row_tokens < places ? 0 : (row_tokens - places) / stepped(places) + 1;
}

}  // namespace

std::string made_with(const Settings& settings) {
  GrpoSettings grpo = settings.grpo;
  rewards::RewardSettings reward = settings.reward;
  // Prompts are compared by what they say, and held-out ones have no rows.
  const GrpoSettings usual;
  grpo.prompts = usual.prompts, grpo.val_prompts = usual.val_prompts, grpo.eval_samples = usual.eval_samples;
  grpo.max_resampling = usual.max_resampling;
  grpo.rollout_batch_size = usual.rollout_batch_size;  // an answer does not depend on those beside it
  const rewards::RewardSettings patient;
  reward.command_timeout = patient.command_timeout, reward.command_memory = patient.command_memory;
  std::string text = config::to_json(config::Table({section(grpo), section(reward)}));
  // Checkpoints from before this setting hold answers that were made with its default.
  const std::string line = "  \"grpo.masked_completions_count\": false,\n";
  if (const size_t at = text.find(line); at != std::string::npos) text.erase(at, line.size());
  return base::checksum_text(base::hash_text(fmt::format("{}\n{}", text, settings.train.max_seq_length.value_or(0))));
}

std::string to_json(const Rollout& rollout) {
  json groups = json::array();
  for (const RolloutGroup& g : rollout.groups) {
    json answers = json::array();
    for (const RolloutAnswer& a : g.answers)
      answers.push_back({{"tokens", a.tokens},
                         {"logprobs", numbers(a.logprobs)},
                         {"sampled", numbers(a.sampled)},
                         {"reference", numbers(a.reference)},
                         {"truncated", a.is_truncated},
                         {"parts", numbers(a.parts)},
                         {"reward", a.reward ? json(*a.reward) : json(nullptr)},
                         {"advantage", a.advantage}});
    groups.push_back({{"prompt", g.prompt},
                      {"tokens", g.tokens},
                      {"failure", g.failure},
                      {"has_spread", g.has_spread},
                      {"answers", answers}});
  }
  return base::json_text(json{{"number", rollout.place.number},
                              {"begins", rollout.place.begins},
                              {"prompts_read", rollout.prompts_read},
                              {"prompts_before", rollout.prompts_before},
                              {"made_with", rollout.made_with},
                              {"measures", numbers(rollout.measures)},
                              {"groups", groups}});
}

Rollout parse_rollout(const std::string& text, const std::string& place) try {
  const json j = base::parse_json<json>(text);
  const auto number = j.at("number").get<int64_t>();
  Rollout rollout{.place = {.number = number, .begins = j.value("begins", int64_t{kUnknownBegin})},
                  .prompts_read = j.at("prompts_read").get<int64_t>(),
                  .prompts_before = j.value("prompts_before", j.at("prompts_read").get<int64_t>()),
                  .groups = {},
                  .made_with = j.value("made_with", ""),
                  .measures = numbers_of(j.at("measures"))};
  for (const json& g : j.at("groups")) {
    RolloutGroup group{.prompt = g.at("prompt").get<int64_t>(),
                       .tokens = g.at("tokens").get<std::vector<int64_t>>(),
                       .answers = {},
                       .failure = g.at("failure").get<std::string>(),
                       .has_spread = g.at("has_spread").get<bool>()};
    for (const json& a : g.at("answers"))
      group.answers.push_back(
          {.tokens = a.at("tokens").get<std::vector<int64_t>>(),
           .logprobs = numbers_of(a.at("logprobs")),
           .sampled = a.contains("sampled") ? numbers_of(a.at("sampled")) : std::vector<double>(),
           .reference = numbers_of(a.at("reference")),
           .is_truncated = a.at("truncated").get<bool>(),
           .parts = numbers_of(a.at("parts")),
           .reward = a.at("reward").is_null() ? std::optional<double>() : a.at("reward").get<double>(),
           .advantage = a.at("advantage").get<double>()});
    rollout.groups.push_back(std::move(group));
  }
  return rollout;
} catch (const json::exception& error) {
  throw CheckpointError(
      fmt::format("{}: the answers that it holds cannot be read: {}", place, base::json_reason(error)), place);
}

double overlong_penalty(const GrpoSettings& s, int64_t tokens) {
  if (!s.overlong_buffer) return 0;
  const int64_t over = tokens - (s.max_completion_length - *s.overlong_buffer);
  return over <= 0 ? 0 : -s.overlong_penalty * double(over) / double(*s.overlong_buffer);
}

void set_advantages(const GrpoSettings& s, std::vector<RolloutGroup>& groups) {
  std::vector<double> all;
  for (const RolloutGroup& group : groups)
    for (const double reward : rewards_of(group)) all.push_back(reward);
  for (RolloutGroup& group : groups) {
    const std::vector<double> rewards = rewards_of(group);
    const double mean = mean_of(rewards), count = double(rewards.size());
    group.has_spread = !rewards.empty() && *std::ranges::max_element(rewards) > *std::ranges::min_element(rewards);
    const bool scales = s.advantage_estimator == AdvantageEstimator::grpo;
    const double deviation = deviation_of(s.scale_rewards == ScaleRewards::batch ? all : rewards);
    for (RolloutAnswer& answer : group.answers) {
      answer.advantage = 0;
      if (!answer.reward || rewards.size() < 2) continue;
      const double above = *answer.reward - mean;
      const bool others = s.advantage_estimator == AdvantageEstimator::rloo;
      answer.advantage = others                                            ? above * count / (count - 1)
                         : scales && s.scale_rewards != ScaleRewards::none ? above / (deviation + s.advantage_epsilon)
                                                                           : above;
    }
  }
}

int64_t steps_of_rollout(const GrpoSettings& s) {
  return s.num_iterations * (s.batch_size / s.mini_batch_size.value_or(s.batch_size));
}

int64_t steps_of_run(const Settings& s, int64_t prompts, const RolloutPlace& place) {
  constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();
  int64_t steps = s.train.max_steps.value_or(kNoEnd);
  if (s.train.epochs) {
    int64_t all = 0, own = 0;
    if (__builtin_mul_overflow(*s.train.epochs, prompts, &all)) all = kNoEnd;
    const int64_t rollouts = std::max<int64_t>(1, all / s.grpo.batch_size);
    if (__builtin_mul_overflow(rollouts - place.number, steps_of_rollout(s.grpo), &own) ||
        __builtin_add_overflow(own, place.begins, &own))
      own = kNoEnd;
    steps = std::min(steps, std::max<int64_t>(1, own));
  }
  return steps == kNoEnd ? 0 : steps;
}

double passes(const GrpoSettings& s, const Rollout& rollout, int64_t steps, int64_t prompts) {
  // One division: a pass that ends with a step is a whole number.
  const int64_t all = steps_of_rollout(s), own = rollout.prompts_read - rollout.prompts_before;
  return double(rollout.prompts_before * all + own * steps) / double(all * prompts);
}

GroupRange groups_of_step(const GrpoSettings& s, int64_t groups, int64_t step) {
  const int64_t mini = s.mini_batch_size.value_or(s.batch_size), first = step % (s.batch_size / mini) * mini;
  return {std::min(first, groups), std::min(first + mini, groups)};
}

namespace {

// Whether the answer counts, unless it is masked.
bool is_compared(const GrpoSettings& s, const RolloutGroup& group, const RolloutAnswer& answer) {
  return answer.reward && !answer.tokens.empty() && (s.dynamic_sampling == DynamicSampling::none || group.has_spread);
}

bool is_masked(const GrpoSettings& s, const RolloutAnswer& answer) {
  return s.mask_truncated_completions && answer.is_truncated;
}

}  // namespace

bool counts(const GrpoSettings& s, const RolloutGroup& group, const RolloutAnswer& answer) {
  return is_compared(s, group, answer) && !is_masked(s, answer);
}

namespace {

// What a step of `s` divides by if the whole rollout's tokens count, as in TRL: its share of them, by prompts.
double share_of_tokens(const GrpoSettings& s, const std::vector<RolloutGroup>& groups) {
  int64_t tokens = 0;
  for (const RolloutGroup& group : groups)
    for (const RolloutAnswer& answer : group.answers)
      if (counts(s, group, answer)) tokens += std::ssize(answer.tokens);
  return double(tokens) * double(s.mini_batch_size.value_or(s.batch_size)) / double(s.batch_size);
}

}  // namespace

int64_t set_weights(const GrpoSettings& s, std::vector<RolloutGroup>& groups, const GroupRange& of_step) {
  int64_t tokens = 0, answers = 0;
  const auto for_answers = [&](const auto& body) {
    for (int64_t g = of_step.first; g < of_step.end; ++g) {
      RolloutGroup& group = groups[static_cast<size_t>(g)];
      for (RolloutAnswer& answer : group.answers)
        if (is_compared(s, group, answer)) body(answer);
    }
  };
  for_answers([&](RolloutAnswer& answer) {
    const bool masked = is_masked(s, answer);
    if (!masked) tokens += std::ssize(answer.tokens);
    if (!masked || s.masked_completions_count) ++answers;
  });
  const double share = s.loss_agg_mode == LossAggregation::rollout_token_mean ? share_of_tokens(s, groups) : 0;
  for_answers([&](RolloutAnswer& answer) {
    if (is_masked(s, answer)) return;
    const double all = double(tokens), number = double(answers), own = double(answer.tokens.size());
    switch (s.loss_agg_mode) {
      case LossAggregation::token_mean:
        answer.weight = 1;
        break;
      case LossAggregation::rollout_token_mean:
        answer.weight = all / share;
        break;
      case LossAggregation::sequence_mean_token_mean:
        answer.weight = all / (number * own);
        break;
      case LossAggregation::seq_mean_token_sum:
      case LossAggregation::sequence_mean_token_sum_norm:
        answer.weight = all / number;
        break;
      case LossAggregation::sequence_mean_token_scale:
        answer.weight = all / (number * double(s.max_completion_length));
        break;
    }
  });
  return tokens;
}

int64_t most_places(const GrpoSettings& s) { return s.max_prompt_length + s.max_completion_length - 1; }

int64_t rows_for(const GrpoSettings& s, int64_t answers, int64_t row_tokens) {
  const int64_t each = std::max<int64_t>(1, documents_of_row(row_tokens, most_places(s)));
  return (answers + each - 1) / each;
}

std::vector<PlacedAnswer> place_answers(const GrpoSettings& s, const std::vector<RolloutGroup>& groups,
                                        const GroupRange& of_step, int64_t row_tokens) {
  std::vector<PlacedAnswer> placed;
  for (int64_t g = of_step.first; g < of_step.end; ++g) {
    const RolloutGroup& group = groups[static_cast<size_t>(g)];
    for (int64_t a = 0; a < std::ssize(group.answers); ++a)
      if (counts(s, group, group.answers[static_cast<size_t>(a)])) placed.push_back({.group = g, .answer = a});
  }
  const auto places = [&](const PlacedAnswer& p) {
    const RolloutGroup& group = groups[static_cast<size_t>(p.group)];
    return places_of(group, group.answers[static_cast<size_t>(p.answer)]);
  };
  std::ranges::stable_sort(placed, std::greater<>(), places);
  std::vector<int64_t> used;  // of each row
  for (PlacedAnswer& p : placed) {
    const int64_t length = places(p);
    const auto row = std::ranges::find_if(used, [&](int64_t tokens) { return tokens + length <= row_tokens; });
    p.row = row - used.begin();
    if (row == used.end()) used.push_back(0);
    p.first = used[static_cast<size_t>(p.row)];
    used[static_cast<size_t>(p.row)] = stepped(p.first + length);
  }
  return placed;
}

}  // namespace trireme::train
