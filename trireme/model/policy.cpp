#include "trireme/model/policy.h"

#include <algorithm>
#include <cmath>

namespace trireme::model {
namespace {

constexpr double kMostLogRatio = 20;  ///< of a token, up or down
constexpr double kMostSequenceLogRatio = 10;

struct Slope {
  double value = 0, slope = 0;  ///< and its derivative by the token's log-probability
};

Slope ratio_of(const PolicyOptions& o, const PolicyToken& t) {
  const bool by_sequence = o.ratio == RatioOf::sequence;
  const double log_ratio = by_sequence ? t.mean_log_ratio : t.logp - t.old;
  const double most = by_sequence ? kMostSequenceLogRatio : kMostLogRatio, least = by_sequence ? -HUGE_VAL : -most;
  const double ratio = std::exp(std::clamp(log_ratio, least, most));
  return {ratio, log_ratio < least || log_ratio > most ? 0 : ratio};
}

Slope kl_of(KlLoss kl, double above) {
  switch (kl) {
    case KlLoss::kl:
      return {above, 1};
    case KlLoss::mse_kl:
      return {0.5 * above * above, above};
    case KlLoss::low_var_kl:
      break;
  }
  return {std::expm1(-above) + above, -std::expm1(-above)};
}

}  // namespace

PolicyJudgement judge_token(const PolicyOptions& o, const PolicyToken& t) {
  const Slope ratio = ratio_of(o, t);
  const double clipped = std::clamp(ratio.value, 1 - o.epsilon, 1 + o.epsilon_high);
  PolicyJudgement j{.loss = -t.advantage * ratio.value, .d_logp = -t.advantage * ratio.slope, .ratio = ratio.value};
  if (-t.advantage * clipped > j.loss) j = {.loss = -t.advantage * clipped, .ratio = ratio.value, .is_clipped = true};
  if (o.epsilon_c && t.advantage < 0 && j.loss > -t.advantage * *o.epsilon_c)
    j = {.loss = -t.advantage * *o.epsilon_c, .ratio = ratio.value, .is_clipped = true};
  if (o.beta == 0) return j;
  Slope kl = kl_of(o.kl, t.logp - t.reference);
  // Of n tokens with one ratio each moves it by r / n, and with it the n distances.
  const double moved = o.weighs_answers() ? t.mean_distance : kl.value;
  if (o.ratio_of_kl) kl = {kl.value * ratio.value, kl.slope * ratio.value + moved * ratio.slope};
  j.kl = kl.value;
  j.loss += o.beta * kl.value;
  j.d_logp += o.beta * kl.slope;
  return j;
}

double distance_of(const PolicyOptions& o, double above) { return kl_of(o.kl, above).value; }

std::span<const char* const> policy_measures() {
  static constexpr const char* kNames[] = {"kl", "clip_ratio", "ratio"};
  return kNames;
}

}  // namespace trireme::model
