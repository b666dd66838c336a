#include "trireme/train/settings_grpo.h"

#include <fmt/format.h>

#include "trireme/config/problems.h"
#include "trireme/generate/settings.h"
#include "trireme/model/settings.h"

namespace trireme::train {

using config::Resumed;
using config::Rules;

std::span<const config::Choice<AdvantageEstimator>> choices_of(AdvantageEstimator) {
  static const std::vector<config::Choice<AdvantageEstimator>> kTable = {
      {AdvantageEstimator::grpo, "grpo", {}},
      {AdvantageEstimator::drgrpo, "drgrpo", {"dr_grpo"}},
      {AdvantageEstimator::rloo, "rloo", {}}};
  return kTable;
}

std::span<const config::Choice<ScaleRewards>> choices_of(ScaleRewards) {
  static const std::vector<config::Choice<ScaleRewards>> kTable = {{ScaleRewards::group, "group", {"true"}},
                                                                   {ScaleRewards::batch, "batch", {}},
                                                                   {ScaleRewards::none, "none", {"false"}}};
  return kTable;
}

std::span<const config::Choice<LossAggregation>> choices_of(LossAggregation) {
  using enum LossAggregation;
  static const std::vector<config::Choice<LossAggregation>> kTable = {
      {sequence_mean_token_mean, "sequence-mean-token-mean", {"seq-mean-token-mean"}},
      {token_mean, "token-mean", {}},
      {rollout_token_mean, "rollout-token-mean", {}},
      {seq_mean_token_sum, "seq-mean-token-sum", {"sequence-mean-token-sum"}},
      {sequence_mean_token_scale, "sequence-mean-token-scale", {"seq-mean-token-scale"}},
      {sequence_mean_token_sum_norm, "sequence-mean-token-sum-norm", {"seq-mean-token-sum-norm"}}};
  return kTable;
}

std::span<const config::Choice<DynamicSampling>> choices_of(DynamicSampling) {
  static const std::vector<config::Choice<DynamicSampling>> kTable = {{DynamicSampling::none, "none", {"false"}},
                                                                      {DynamicSampling::drop, "drop", {}},
                                                                      {DynamicSampling::refill, "refill", {"true"}}};
  return kTable;
}

std::span<const config::Choice<SamplerCorrection>> choices_of(SamplerCorrection) {
  using enum SamplerCorrection;
  static const std::vector<config::Choice<SamplerCorrection>> kTable = {{automatic, "auto", {}},
                                                                        {none, "none", {"null", "false"}},
                                                                        {token_truncate, "token_truncate", {"token"}},
                                                                        {token_mask, "token_mask", {}},
                                                                        {sequence_truncate, "sequence_truncate", {}},
                                                                        {sequence_mask, "sequence_mask", {}}};
  return kTable;
}

namespace {

void check(const GrpoSettings& s, config::Problems& problems) {
  const int64_t mini = s.mini_batch_size.value_or(s.batch_size);
  if (s.batch_size % mini != 0)
    problems.add(fmt::format("grpo.batch_size {} cannot be divided into mini-batches of {}", s.batch_size, mini), {},
                 "grpo.mini_batch_size, the prompts of an optimizer step, must divide grpo.batch_size");
  if (s.num_generations < 2)
    problems.add("a group of one answer has nothing to be compared with", {},
                 "give grpo.num_generations 2 or more, for instance 8");
  if (s.epsilon_high.value_or(s.epsilon) < s.epsilon)
    problems.add(fmt::format("grpo.epsilon_high {:g} is below grpo.epsilon {:g}", *s.epsilon_high, s.epsilon), {},
                 "the upper bound of the ratio is the wider one: give at least grpo.epsilon, or leave it out");
  if (s.epsilon_c && *s.epsilon_c <= 1 + s.epsilon_high.value_or(s.epsilon))
    problems.add(fmt::format("grpo.epsilon_c {:g} lies within the bounds of the ratio", *s.epsilon_c), {},
                 "it bounds ratios above 1 + grpo.epsilon_high; give for instance 3");
  if (s.sampler_is_min && s.sampler_is_threshold && *s.sampler_is_min >= *s.sampler_is_threshold)
    problems.add(fmt::format("grpo.sampler_is_min {:g} is not below grpo.sampler_is_threshold {:g}", *s.sampler_is_min,
                             *s.sampler_is_threshold),
                 {}, "they are the bounds of the same weights; leave grpo.sampler_is_min out, or lower it");
  if (s.overlong_buffer && *s.overlong_buffer > s.max_completion_length)
    problems.add(fmt::format("grpo.overlong_buffer {} is longer than an answer", *s.overlong_buffer), {},
                 "it is the last part of grpo.max_completion_length, for instance a fifth");
}

}  // namespace

config::Section section(GrpoSettings& s) {
  const auto count = [](std::string_view unit) { return Rules{.unit = unit, .at_least = 1, .at_most = 1e7}; };
  return {
      .name = "grpo",
      .title = "learning from rewards",
      .resumed = Resumed::learned,
      .rows =
          {{"grpo.prompts", &s.prompts,
            "file of prompts, JSON in each line: {\"prompt\"} or {\"messages\"}, with what rewards read, such as "
            "\"answer\"",
            Rules{.absent = "none", .example = "train.jsonl"}},
           {"grpo.val_prompts", &s.val_prompts, "file of held-out prompts",
            Rules{.absent = "none", .when_absent = "nothing is held out", .example = "test.jsonl"}},
           {"grpo.num_generations", &s.num_generations, "answers to each prompt: a group", count("answers")},
           {"grpo.batch_size", &s.batch_size, "prompts that are answered before the model changes", count("prompts")},
           {"grpo.mini_batch_size", &s.mini_batch_size, "of these, prompts of an optimizer step",
            Rules{
                .unit = "prompts", .at_least = 1, .absent = "auto", .when_absent = "grpo.batch_size", .example = "4"}},
           {"grpo.num_iterations", &s.num_iterations, "how often answers are learned from", count("times")},
           {"grpo.beta", &s.beta, "weight of the distance to the reference; 0: no reference", Rules{.at_least = 0}},
           {"grpo.kl_loss_mode", &s.kl_loss_mode,
            "the distance: log p - log p of the reference (kl), half its square (mse_kl), or an estimate that is never "
            "negative (low_var_kl, as in TRL and verl). kl measures and does not pull, unless "
            "grpo.use_bias_correction_kl is true"},
           {"grpo.use_bias_correction_kl", &s.use_bias_correction_kl,
            "the distance counts times the ratio of probabilities, so that its gradient has no bias (TRL's default)"},
           {"grpo.use_rollout_logps", &s.use_rollout_logps,
            "old log-probabilities are those of sampling; false: a pass over the answers computes them as training "
            "does. So it is with grpo.sampler_is, too"},
           {"grpo.sampler_is", &s.sampler_is,
            "a token's loss counts times its probability as training computes it, over the one that it was drawn with: "
            "at most the threshold (token_truncate), or not at all above it (token_mask); or times that of the whole "
            "answer (sequence_truncate, sequence_mask). auto: token_truncate with grpo.rollout_quantize, else none"},
           {"grpo.sampler_is_threshold", &s.sampler_is_threshold, "the largest of these weights",
            Rules{.above = 0, .absent = "null", .when_absent = "no bound"}},
           {"grpo.sampler_is_min", &s.sampler_is_min, "and the smallest",
            Rules{.above = 0, .absent = "null", .when_absent = "no bound", .example = "0.5"}},
           {"grpo.epsilon", &s.epsilon, "a token's probability counts up to this share below the sampled one",
            Rules{.above = 0, .below = 1}},
           {"grpo.epsilon_high", &s.epsilon_high, "and up to this share above it",
            Rules{.above = 0, .absent = "auto", .when_absent = "grpo.epsilon", .example = "0.28"}},
           {"grpo.epsilon_c", &s.epsilon_c, "with a negative advantage, the ratio counts up to here (dual clip)",
            Rules{.above = 1, .absent = "null", .when_absent = "no bound", .example = "3"}},
           {"grpo.loss_algo", &s.loss_algo, "ratios of tokens (grpo) or of whole answers (gspo-token)"},
           {"grpo.loss_agg_mode", &s.loss_agg_mode,
            "how tokens are averaged over an optimizer step: by answer, then over answers, or all alike (token-mean, "
            "DAPO). rollout-token-mean divides by the step's share of the rollout's tokens (TRL's dapo)"},
           {"grpo.advantage_estimator", &s.advantage_estimator,
            "what a reward is compared with: its group's mean, scaled (grpo) or not (drgrpo), or the mean of the "
            "others "
            "(rloo)"},
           {"grpo.scale_rewards", &s.scale_rewards,
            "advantages are divided by the standard deviation of these rewards"},
           {"grpo.advantage_epsilon", &s.advantage_epsilon, "added to that standard deviation", Rules{.above = 0}},
           {"grpo.dynamic_sampling", &s.dynamic_sampling,
            "groups whose answers are all as good: learned from (none), left out (drop), or replaced by those of "
            "further prompts (refill)"},
           {"grpo.max_resampling", &s.max_resampling, "with refill: batches of prompts that are answered for one",
            count("batches")},
           {"grpo.overlong_buffer", &s.overlong_buffer, "the last tokens of grpo.max_completion_length cost a penalty",
            Rules{.unit = "tokens", .at_least = 1, .absent = "null", .when_absent = "no penalty", .example = "64"}},
           {"grpo.overlong_penalty", &s.overlong_penalty, "the penalty of an answer that fills them all",
            Rules{.at_least = 0}},
           {"grpo.mask_truncated_completions", &s.mask_truncated_completions,
            "nothing is learned from answers that the limit of tokens ends"},
           {"grpo.masked_completions_count", &s.masked_completions_count,
            "answers that grpo.mask_truncated_completions leaves out count in means over answers, with a loss of 0 "
            "(TRL)"},
           {"grpo.max_prompt_length", &s.max_prompt_length,
            "prompts with more tokens are left out; the default is less where the model has no room for it",
            count("tokens")},
           {"grpo.max_completion_length", &s.max_completion_length, "an answer ends after this many tokens",
            count("tokens")},
           {"grpo.temperature", &s.temperature, "of sampling, and of all log-probabilities", Rules{.above = 0}},
           {"grpo.top_k", &s.top_k, "draw only from the likeliest K tokens",
            Rules{.unit = "tokens", .at_least = 1, .absent = "null", .when_absent = "all tokens", .example = "50"}},
           {"grpo.top_p", &s.top_p, "draw only from the likeliest tokens with this probability together",
            generate::bounds::top_p()},
           {"grpo.min_p", &s.min_p, "draw only tokens with this share of the likeliest one's probability",
            generate::bounds::min_p()},
           {"grpo.rollout_batch_size", &s.rollout_batch_size, "answers that a copy of the model writes at a time",
            count("answers")},
           {"grpo.rollout_quantize", &s.rollout_quantize,
            "answers are written from the matrices of all blocks in few bits, quantized for each rollout, as quantize "
            "has them; evaluations answer with all bits"},
           {"grpo.reference", &s.reference, "folder of the reference; or of an adapter for the same base",
            Rules{.absent = "none",
                  .when_absent = "the model before training, with lora.initial_adapter and without new adapters",
                  .example = "llama-sft"}},
           {"grpo.stop", &s.stop, "words that end an answer; rewards do not see them",
            Rules{.absent = "none", .example = "[\"Question:\"]"}},
           {"grpo.system", &s.system, "system message before conversations that have none",
            Rules{.absent = "none", .example = "Answer with a number."}},
           {"grpo.chat_template", &s.chat_template, "chat format of conversations",
            Rules{.absent = "auto",
                  .when_absent = "the one that the model was trained in, else that of its folder",
                  .example = "chatml"}},
           {"grpo.eval_samples", &s.eval_samples,
            "at each evaluation, drawn answers to each held-out prompt, beside the likeliest one (mean@k)",
            Rules{.unit = "answers", .at_least = 0}}},
      .others =
          {{{"max_generation_steps", "total_generation_steps", "max_tokens_to_generate"},
            "an answer ends after grpo.max_completion_length tokens"},
           {{"train_micro_batch_size"}, "rows that a rank computes at once are train.micro_batch_size"},
           {{"gradient_accumulation_steps"},
            "accumulation follows from grpo.mini_batch_size, train.micro_batch_size and the number of ranks"},
           {{"reward_funcs", "reward_functions"}, "rewards are named in reward.functions"},
           {{"use_vllm", "vllm_mode"},
            "answers are sampled by the engine that trains; leave it out. grpo.rollout_quantize lets them be written "
            "from weights in few bits",
            true}},
      .check = [&s](config::Problems& problems) { check(s, problems); }};
}

}  // namespace trireme::train
