// Settings of learning from rewards (trireme grpo). The names are tunix's, or TRL's where tunix has none. What a reward
// is: trireme/rewards/settings.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/block_format.h"
#include "trireme/config/declaration.h"
#include "trireme/model/settings_policy.h"

namespace trireme::train {

/// What an answer's reward is compared with.
enum class AdvantageEstimator {
  grpo,  ///< the mean of its group, in standard deviations (ScaleRewards)
  drgrpo,  ///< the mean of its group
  rloo,  ///< the mean of the others of its group
};
std::span<const config::Choice<AdvantageEstimator>> choices_of(AdvantageEstimator);

/// Of which rewards the standard deviation is taken.
enum class ScaleRewards { group, batch, none };
std::span<const config::Choice<ScaleRewards>> choices_of(ScaleRewards);

/// What tokens count in the loss of a step: T tokens of N answers, of which answer i has t_i.
enum class LossAggregation {
  sequence_mean_token_mean,  ///< 1 / (N t_i)
  token_mean,  ///< 1 / T
  rollout_token_mean,  ///< 1 / the step's share of the whole rollout's tokens, by prompts
  seq_mean_token_sum,  ///< 1 / N
  sequence_mean_token_scale,  ///< 1 / (N max_completion_length)
  sequence_mean_token_sum_norm,  ///< 1 / N
};
std::span<const config::Choice<LossAggregation>> choices_of(LossAggregation);

/// What becomes of groups whose answers all have the same reward, and so no advantage.
enum class DynamicSampling {
  none,  ///< they count like others
  drop,  ///< nothing is learned from them
  refill,  ///< nor from them, and further prompts are answered until the batch is full (DAPO)
};
std::span<const config::Choice<DynamicSampling>> choices_of(DynamicSampling);

/// How the weights of tokens are bounded that correct for answers whose old log-probabilities are not those of sampling
/// (train/sampler_correction.h).
enum class SamplerCorrection {
  automatic,  ///< none, or token_truncate with weights that are not the trained ones
  none,
  token_truncate,  ///< of each token; a weight beyond a bound becomes the bound
  token_mask,  ///< of each token; beyond a bound, 0
  sequence_truncate,  ///< one for a whole answer
  sequence_mask,
};
std::span<const config::Choice<SamplerCorrection>> choices_of(SamplerCorrection);

struct GrpoSettings {
  std::optional<std::string> prompts, val_prompts;
  int64_t num_generations = 2;
  int64_t num_iterations = 1;
  int64_t batch_size = 8;
  std::optional<int64_t> mini_batch_size;  ///< absent: batch_size
  double beta = 0.04;
  model::KlLoss kl_loss_mode = model::KlLoss::low_var_kl;
  bool use_bias_correction_kl = false;
  bool use_rollout_logps = true;  ///< old log-probabilities are those of sampling, unless sampler_is needs both
  SamplerCorrection sampler_is = SamplerCorrection::automatic;
  std::optional<double> sampler_is_threshold = 2.0;
  std::optional<double> sampler_is_min;
  double epsilon = 0.2;
  std::optional<double> epsilon_high;  ///< absent: epsilon
  std::optional<double> epsilon_c;
  model::RatioOf loss_algo = model::RatioOf::token;
  LossAggregation loss_agg_mode = LossAggregation::sequence_mean_token_mean;
  AdvantageEstimator advantage_estimator = AdvantageEstimator::grpo;
  ScaleRewards scale_rewards = ScaleRewards::group;
  double advantage_epsilon = 1e-6;
  DynamicSampling dynamic_sampling = DynamicSampling::none;
  int64_t max_resampling = 10;  ///< batches of prompts that may be answered for one step
  std::optional<int64_t> overlong_buffer;  ///< last tokens of max_completion_length that cost; absent: none
  double overlong_penalty = 1;
  bool mask_truncated_completions = false;
  bool masked_completions_count = false;  ///< in means over answers, with a loss of 0
  int64_t max_prompt_length = 256;
  int64_t max_completion_length = 256;
  double temperature = 0.9;
  std::optional<int64_t> top_k;
  double top_p = 1;
  double min_p = 0;
  int64_t rollout_batch_size = 32;
  base::BlockFormat rollout_quantize = base::BlockFormat::none;  ///< what writes the answers of rollouts
  std::optional<std::string> reference;  ///< absent: the model before training
  std::optional<std::vector<std::string>> stop;
  std::optional<std::string> system;
  std::optional<std::string> chat_template;
  int64_t eval_samples = 0;  ///< drawn answers to each held-out prompt, beside the likeliest one
  bool operator==(const GrpoSettings&) const = default;

  /// sampler_is, where it is automatic.
  SamplerCorrection correction() const {
    if (sampler_is != SamplerCorrection::automatic) return sampler_is;
    return rollout_quantize == base::BlockFormat::none ? SamplerCorrection::none : SamplerCorrection::token_truncate;
  }
  /// Old log-probabilities are computed in a pass over the answers.
  bool scores_answers() const { return !use_rollout_logps || correction() != SamplerCorrection::none; }
};
config::Section section(GrpoSettings& settings);

}  // namespace trireme::train
