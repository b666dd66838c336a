// Policy losses: what a token that the model sampled itself adds to the loss of learning from rewards. The names and
// the meaning are those of google/tunix, where TRL has the same ones.
//
// Source    Shao et al., DeepSeekMath (2024), section 4 (GRPO); Yu et al., DAPO (2025); Zheng et al., GSPO (2025);
//           Ye et al., Mastering Complex Control in MOBA Games (2020) (dual clip)
#pragma once

#include <span>

#include "trireme/model/settings_policy.h"

namespace trireme::model {

/// What a batch says of each token beside its target: float64, as the bits of int64 (at::Tensor::view).
struct PolicyInput {
  enum Row {
    weight = 1,  ///< how often the token's loss counts; the engine divides the sum by the supervised tokens
    advantage,   ///< of the answer
    old,         ///< the token's log-probability when it was sampled
    reference,   ///< and under the reference; 0 without one
    end
  };
};

struct PolicyToken {
  double logp = 0, old = 0, reference = 0, advantage = 0;
  /// RatioOf::sequence: the means over the answer of logp - old, and of the distance, if
  /// PolicyOptions::weighs_answers().
  double mean_log_ratio = 0, mean_distance = 0;
};

/// A token's loss and its derivative by the token's log-probability.
struct PolicyJudgement {
  double loss = 0, d_logp = 0;
  double kl = 0;           ///< of PolicyOptions::kl, times the ratio with PolicyOptions::ratio_of_kl
  double ratio = 1;
  bool is_clipped = false;  ///< the clipped ratio is what counts
};

/// @returns  max(-A r, -A clip(r, 1 - epsilon, 1 + epsilon_high)) + beta kl, where r is the ratio of probabilities;
///           with epsilon_c and A < 0 at most -A epsilon_c; with ratio_of_kl, kl r in place of kl, whose derivative is
///           that of the distance itself (DeepSeek-V3.2, 2025). If r is an answer's, all of its distances move with r
PolicyJudgement judge_token(const PolicyOptions& options, const PolicyToken& token);
/// A token's distance to the reference, without the ratio; `above`: logp - reference.
double distance_of(const PolicyOptions& options, double above);

/// What Measure the head has for policies, as means over tokens.
std::span<const char* const> policy_measures();

}  // namespace trireme::model
