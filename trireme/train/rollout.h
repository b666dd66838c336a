// A rollout: answers of the model to a batch of prompts, what they are worth, and which tokens of them count how much
// in the optimizer steps that learn from them. All functions here are pure, so every rank comes to the same numbers.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/progress.h"
#include "trireme/settings/settings.h"
#include "trireme/train/settings_grpo.h"

namespace trireme::train {

/// The part of a reward whose function left the answer out.
inline constexpr double kLeftOut = std::numeric_limits<double>::quiet_NaN();

struct RolloutAnswer {
  std::vector<int64_t> tokens;      ///< without the prompt; a stop token is the last one
  std::vector<double> logprobs;     ///< of each, when it was drawn, at the temperature of sampling; or computed anew
  std::vector<double> sampled = {};  ///< when it was drawn, where both are known; else empty
  std::vector<double> reference;    ///< and under the reference; empty without one
  bool is_truncated = false;        ///< the limit of tokens ended it
  std::vector<double> parts;        ///< of the reward, by reward function; or kLeftOut
  std::optional<double> reward;     ///< the weighted sum; none: the answer is left out of its group
  double advantage = 0;
  double weight = 0;                ///< of each of its tokens in the loss of its step
  std::vector<double> correction = {};  ///< that of each token for how it was drawn (sampler_correction.h); empty: 1
  bool operator==(const RolloutAnswer&) const = default;
};

/// The answers to one prompt.
struct RolloutGroup {
  int64_t prompt = 0;               ///< its number in the file
  std::vector<int64_t> tokens;      ///< of the prompt
  std::vector<RolloutAnswer> answers;
  std::string failure;              ///< why no reward could be computed; "": it could
  bool has_spread = false;          ///< its rewards differ
  bool operator==(const RolloutGroup&) const = default;
};

/// Where a rollout stands in a run. New prompts begin anew; so does a rollout whose answers were left out.
struct RolloutPlace {
  int64_t number = -1;              ///< rollouts of the run's prompts before it
  int64_t begins = 0;               ///< optimizer steps of the run before its first one
  bool operator==(const RolloutPlace&) const = default;
};

struct Rollout {
  RolloutPlace place;
  int64_t prompts_read = 0;         ///< since the start of training, with those of this rollout
  int64_t prompts_before = 0;       ///< and without them
  std::vector<RolloutGroup> groups; ///< in the order in which optimizer steps take them
  std::string made_with = {};       ///< made_with() of the settings then
  std::vector<double> measures = {};///< of sampling, which metrics repeat for each of its steps
  std::vector<base::Measured> corrections = {};///< likewise of set_corrections(); not saved
  bool operator==(const Rollout&) const = default;
};

/// A checksum of the settings on which answers, rewards and rows depend: a rollout of other settings is of no use.
std::string made_with(const Settings& settings);

/// RolloutPlace::begins of what was saved before it was counted.
inline constexpr int64_t kUnknownBegin = -1;
/// Numbers that print and read back to the same bits. Errors    CheckpointError naming `place`
std::string to_json(const Rollout& rollout);
Rollout parse_rollout(const std::string& json, const std::string& place);

/// The penalty for an answer of `tokens` tokens: 0 before the buffer, then a straight line down to -overlong_penalty.
/// Source    Yu et al., DAPO (2025), equation 13
double overlong_penalty(const GrpoSettings& settings, int64_t tokens);

/// Fills in has_spread and the advantages. An answer without a reward has none, and is compared with nobody.
void set_advantages(const GrpoSettings& settings, std::vector<RolloutGroup>& groups);

/// The groups that optimizer step `step` of a rollout takes: [first, end).
struct GroupRange {
  int64_t first = 0, end = 0;
};
GroupRange groups_of_step(const GrpoSettings& settings, int64_t groups, int64_t step);
/// Optimizer steps of a rollout.
int64_t steps_of_rollout(const GrpoSettings& settings);
/// Optimizer steps of a run over a file of `prompts` prompts: train.max_steps, or those of the whole rollouts, at least
/// one, that all passes of train.epochs have together. A pass runs on into the next one. 0: without an end.
/// place     of the rollout with which the run goes on
int64_t steps_of_run(const Settings& settings, int64_t prompts, const RolloutPlace& place = {.number = 0});
/// Passes over a file of `prompts` prompts after `steps` of a rollout's steps: each of them learns its share.
double passes(const GrpoSettings& settings, const Rollout& rollout, int64_t steps, int64_t prompts);

/// Whether tokens of the answer count in a loss.
bool counts(const GrpoSettings& settings, const RolloutGroup& group, const RolloutAnswer& answer);
/// Sets the weights of a step's answers (LossAggregation). Returns how many tokens count; the engine divides the sum
/// by it, so weights are multiplied by it.
int64_t set_weights(const GrpoSettings& settings, std::vector<RolloutGroup>& groups, const GroupRange& of_step);

/// Where answers lie in the rows of a step: each with its prompt, as a document.
struct PlacedAnswer {
  int64_t group = 0, answer = 0;
  int64_t row = 0, first = 0;  ///< place of the prompt's first token
};
/// Documents begin at multiples of this many tokens, as the cache's pages do: so attention adds keys up in the same
/// blocks as in sampling.
inline constexpr int64_t kDocumentStep = 128;

/// Rows that hold `answers` answers, however long they become.
int64_t rows_for(const GrpoSettings& settings, int64_t answers, int64_t row_tokens);
/// Places of a prompt with its answer in a row: all of its tokens but the last.
int64_t most_places(const GrpoSettings& settings);
/// First-fit in decreasing length, over the answers of a step that count.
std::vector<PlacedAnswer> place_answers(const GrpoSettings& settings, const std::vector<RolloutGroup>& groups,
                                        const GroupRange& of_step, int64_t row_tokens);

}  // namespace trireme::train
