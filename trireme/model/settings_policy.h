// Settings of the losses of GRPO and its kin, which the head computes; trireme/train/settings_grpo.h has the rest.
#pragma once

#include <optional>
#include <span>

#include "trireme/config/declaration.h"

namespace trireme::model {

/// How far a token's log-probability is from the reference's: tunix's names.
enum class KlLoss {
  kl,          ///< log p - log p_reference
  mse_kl,      ///< half the square of it
  low_var_kl,  ///< exp(-it) + it - 1, which is never negative (Schulman's k3)
};
std::span<const config::Choice<KlLoss>> choices_of(KlLoss);

/// What the ratio of probabilities is taken of.
enum class RatioOf {
  token,     ///< each token by itself
  sequence,  ///< the geometric mean over an answer (GSPO)
};
std::span<const config::Choice<RatioOf>> choices_of(RatioOf);

/// The numbers of the loss of a token (model/policy.h).
struct PolicyOptions {
  double epsilon = 0.2, epsilon_high = 0.2;  ///< the ratio counts between 1 - epsilon and 1 + epsilon_high
  std::optional<double> epsilon_c;  ///< with a negative advantage, a ratio counts up to here (dual clip)
  RatioOf ratio = RatioOf::token;
  double beta = 0;  ///< weight of the distance to the reference; 0: there is none
  KlLoss kl = KlLoss::kl;
  bool ratio_of_kl = false;  ///< the distance counts times the ratio
  double temperature = 1;  ///< logits are divided by it, as in sampling
  /// One ratio weighs all distances of an answer, so its derivative needs their sum.
  bool weighs_answers() const { return ratio == RatioOf::sequence && ratio_of_kl && beta > 0; }
  bool operator==(const PolicyOptions&) const = default;
};

}  // namespace trireme::model
