// Weights for answers that were drawn with other probabilities than those that training computes for them: by other
// weights, or by sums in another order. A token's weight is the ratio of the two, within bounds; a token's loss without
// its distance to the reference counts times it. The ratio that grpo.epsilon bounds begins at training's probabilities.
//
// Source    TRL 1.16, GRPOTrainer (vllm_importance_sampling_mode); google/tunix (sampler_is: token). Yao et al., Your
//           Efficient RL Framework Secretly Brings You Off-Policy RL Training (2025)
#pragma once

#include <vector>

#include "trireme/base/progress.h"
#include "trireme/train/rollout.h"

namespace trireme::train {

/// Fills in RolloutAnswer::correction of all answers that count, from `logprobs` and `sampled`.
///
/// Returns   measures, as TRL has them: smallest, mean and largest weight, the share of them that a bound changed, and
///           mean and largest difference of a token's two log-probabilities. One weight a token, or one an answer where
///           it is the answer's. Nothing without a correction
std::vector<base::Measured> set_corrections(const GrpoSettings& settings, std::vector<RolloutGroup>& groups);

}  // namespace trireme::train
