// Objective: what the head of a language model makes of its tokens' log-probabilities. Cross-entropy is the usual one.
// Losses of preferences compare the sums of two replies to one prompt, a chosen one and a rejected one. The names and
// the meaning of these losses are TRL's; objective.cpp has a row for each.
//
// Rows hold whole pairs: document 2 i of a row is the chosen reply of its i-th pair, with the prompt, and document
// 2 i + 1 the rejected one. So both replies of a pair lie in one micro-batch, on one data rank.
//
// Losses of rewards (policy.h) need a token's own log-probability, and by sequence those of its answer, a document.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/model/policy.h"
#include "trireme/model/settings_objective.h"

namespace trireme::model {

struct WeightedPairLoss {
  PairLoss loss = PairLoss::sigmoid;
  double weight = 1;
  bool operator==(const WeightedPairLoss&) const = default;
};

/// The numbers of these losses, with TRL's names.
struct PairOptions {
  double beta = 0.1;
  double label_smoothing = 0;  ///< robust, exo_pair, simpo
  double discopop_tau = 0.05;
  double simpo_gamma = 0.5;
  bool operator==(const PairOptions&) const = default;
};

struct Objective {
  std::vector<WeightedPairLoss> pairs;  ///< empty: cross-entropy
  PairOptions options;
  std::optional<PolicyOptions> policy;  ///< present: learning from rewards
  double label_smoothing = 0;  ///< of cross-entropy: this share of a target goes to all tokens alike
  double z_loss = 0;  ///< the square of log(sum of exp(logits)) counts this much in a token's loss
  bool operator==(const Objective&) const = default;

  bool is_pairs() const { return !pairs.empty(); }
  bool is_policy() const { return policy.has_value(); }
  /// The batch says more of each token than its target.
  bool has_inputs() const { return is_pairs() || is_policy(); }
  /// Sums over documents come first.
  bool sums_documents() const { return is_pairs() || (policy && policy->ratio == RatioOf::sequence); }
  /// Cross-entropy and nothing else, which the head computes in one call.
  bool is_plain() const { return !has_inputs() && label_smoothing == 0 && z_loss == 0; }
  bool needs_reference() const;
  /// Rewards are means of log p over tokens (orpo, simpo), not sums beside a reference's.
  bool rewards_are_means() const;
  /// A loss looks at the rejected reply. Of sft alone, rewards would be no numbers of TRL's.
  bool compares_replies() const;
  /// How often the likelihood counts: the weights of the losses that have one, together.
  double likelihood_weight() const;
  /// Rows of the targets: the ids, and behind them PairInput or PolicyInput.
  int64_t target_rows() const;
};

/// What a batch says of each token beside its target: float64, as the bits of int64 (at::Tensor::view).
struct PairInput {
  enum Row {
    reply = 1,  ///< 1: the target belongs to a reply, and its log-probability to the reply's sum; else 0
    likelihood,  ///< how often the target's negative log-probability counts in the loss (sft, orpo); else 0
    reference,  ///< summed over a reply: its log-probability under the reference
    end
  };
};

/// Sums over the tokens of both replies of a pair.
struct PairSums {
  double chosen = 0, rejected = 0;  ///< log-probabilities
  double reference_chosen = 0, reference_rejected = 0;
  double chosen_tokens = 1, rejected_tokens = 1;
};

/// The loss of a pair, without its likelihood, and its derivatives by the two sums.
struct PairJudgement {
  double loss = 0, d_chosen = 0, d_rejected = 0;
  double chosen_reward = 0, rejected_reward = 0;  ///< TRL's; in any order of the losses
};
PairJudgement judge_pair(const Objective& objective, const PairSums& sums);

/// Which targets' likelihood is a part of a loss.
enum class Likelihood { none, reply, whole };  ///< of the chosen text; whole: prompt and reply
Likelihood likelihood_of(PairLoss loss);

/// What Measure the head has for pairs, as means over pairs. The last one, the likelihood, is as the loss has it: with
/// the weights of its losses (Objective::likelihood_weight).
std::span<const char* const> pair_measures();

/// Where a run can read log-probabilities of a micro-batch.
struct Scores {
  /// Called in evaluation on ranks with the head. Of pairs, `sums` [B * S] float64: where a document begins in its row,
  /// the sum over its reply; elsewhere 0. Over all context-parallel ranks. Of policies, [T] float64: of each of this
  /// rank's tokens; 0 where there is no target.
  std::function<void(int micro_batch, const at::Tensor& sums)> taken;
};

}  // namespace trireme::model
