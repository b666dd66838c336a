#include "trireme/model/objective.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace trireme::model {
namespace {

// A number with its derivatives by the two sums. So each loss below is written once.
struct Dual {
  double value = 0, chosen = 0, rejected = 0;
};

Dual with_slope(const Dual& x, double value, double slope) { return {value, slope * x.chosen, slope * x.rejected}; }
Dual operator+(const Dual& a, const Dual& b) {
  return {a.value + b.value, a.chosen + b.chosen, a.rejected + b.rejected};
}
Dual operator*(double a, const Dual& b) { return {a * b.value, a * b.chosen, a * b.rejected}; }
Dual operator-(const Dual& a, const Dual& b) { return a + -1.0 * b; }
Dual operator+(const Dual& a, double b) { return {a.value + b, a.chosen, a.rejected}; }
Dual operator-(const Dual& a, double b) { return a + -b; }
Dual operator-(double a, const Dual& b) { return -1.0 * b + a; }
Dual operator*(const Dual& a, const Dual& b) {
  return {a.value * b.value, a.chosen * b.value + a.value * b.chosen, a.rejected * b.value + a.value * b.rejected};
}

double sigmoid_of(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

Dual sigmoid(const Dual& x) {
  const double s = sigmoid_of(x.value);
  return with_slope(x, s, s * (1 - s));
}
Dual log_sigmoid(const Dual& x) {
  const double value = std::min(x.value, 0.0) - std::log1p(std::exp(-std::abs(x.value)));
  return with_slope(x, value, sigmoid_of(-x.value));
}
Dual exponential(const Dual& x) {
  const double e = std::exp(x.value);
  return with_slope(x, e, e);
}
Dual squared(const Dual& x) { return x * x; }
Dual positive(const Dual& x) { return x.value > 0 ? x : Dual{}; }
// log(1 - e^x) for x < 0. Source: Maechler, Accurately computing log(1 - exp(-|a|)) (2012). A reply that is certain in
// float32 has x = 0, where the slope is infinite; in a loss it meets one that vanishes as fast, so x ends just before.
Dual log_1m_exp(const Dual& x) {
  const double at = std::min(x.value, -1e-12);
  const double value = at > -std::log(2.0) ? std::log(-std::expm1(at)) : std::log1p(-std::exp(at));
  return with_slope(x, value, -1 / std::expm1(-at));
}

// A pair under one loss. A ratio is log p(reply) - log p_reference(reply).
struct Terms {
  Dual chosen_ratio, rejected_ratio;
  Dual chosen_ratio_of_token, rejected_ratio_of_token;
  Dual chosen_of_token, rejected_of_token;  // means of log p over the tokens
  const PairOptions& o;

  Dual delta() const { return chosen_ratio - rejected_ratio; }
  Dual delta_of_token() const { return chosen_ratio_of_token - rejected_ratio_of_token; }
};

Dual sigmoid_loss(const Terms& t) { return -1.0 * log_sigmoid(t.o.beta * t.delta()); }
Dual sigmoid_norm(const Terms& t) { return -1.0 * log_sigmoid(t.o.beta * t.delta_of_token()); }
Dual hinge(const Terms& t) { return positive(1 - t.o.beta * t.delta()); }
Dual ipo(const Terms& t) { return squared(t.delta_of_token() - 1 / (2 * t.o.beta)); }
Dual exo_pair(const Terms& t) {
  const Dual x = t.o.beta * t.delta(), opposite = -1.0 * x;
  return sigmoid(x) * (log_sigmoid(x) - std::log1p(-t.o.label_smoothing)) +
         sigmoid(opposite) * (log_sigmoid(opposite) - std::log(t.o.label_smoothing));
}
Dual robust(const Terms& t) {
  const double flipped = t.o.label_smoothing;
  const Dual x = t.o.beta * t.delta();
  return 1 / (1 - 2 * flipped) * (flipped * log_sigmoid(-1.0 * x) - (1 - flipped) * log_sigmoid(x));
}
Dual nca_pair(const Terms& t) {
  const Dual chosen = t.o.beta * t.chosen_ratio, rejected = t.o.beta * t.rejected_ratio;
  return -1.0 * log_sigmoid(chosen) - 0.5 * log_sigmoid(-1.0 * chosen) - 0.5 * log_sigmoid(-1.0 * rejected);
}
Dual bco_pair(const Terms& t) {
  return -1.0 * log_sigmoid(t.o.beta * t.chosen_ratio) - log_sigmoid(-t.o.beta * t.rejected_ratio);
}
Dual sppo_hard(const Terms& t) {
  return squared(t.chosen_ratio - 0.5 / t.o.beta) + squared(t.rejected_ratio + 0.5 / t.o.beta);
}
Dual apo_zero(const Terms& t) { return 1 - sigmoid(t.o.beta * t.chosen_ratio) + sigmoid(t.o.beta * t.rejected_ratio); }
Dual apo_down(const Terms& t) { return sigmoid(t.o.beta * t.chosen_ratio) + (1 - sigmoid(t.o.beta * t.delta())); }
Dual discopop(const Terms& t) {
  const Dual x = t.o.beta * t.delta(), mixed = sigmoid(1 / t.o.discopop_tau * x);
  return -1.0 * log_sigmoid(x) * (1 - mixed) + exponential(-1.0 * x) * mixed;
}
Dual nothing(const Terms&) { return {}; }  // its likelihood is all
// Hong et al., ORPO (2024), equations 4 and 7
Dual orpo(const Terms& t) {
  const Dual odds =
      t.chosen_of_token - t.rejected_of_token - log_1m_exp(t.chosen_of_token) + log_1m_exp(t.rejected_of_token);
  return -t.o.beta * log_sigmoid(odds);
}
// Meng et al., SimPO (2024)
Dual simpo(const Terms& t) {
  const Dual x = t.o.beta * (t.chosen_of_token - t.rejected_of_token) - t.o.simpo_gamma;
  return -(1 - t.o.label_smoothing) * log_sigmoid(x) - t.o.label_smoothing * log_sigmoid(-1.0 * x);
}

struct Row {
  PairLoss loss;
  Dual (*of)(const Terms&);
  bool needs_reference;
  Likelihood likelihood = Likelihood::none;
};

const Row& row_of(PairLoss loss) {
  static constexpr std::array kRows = {
      Row{PairLoss::sigmoid, sigmoid_loss, true},
      Row{PairLoss::sigmoid_norm, sigmoid_norm, true},
      Row{PairLoss::hinge, hinge, true},
      Row{PairLoss::ipo, ipo, true},
      Row{PairLoss::exo_pair, exo_pair, true},
      Row{PairLoss::robust, robust, true},
      Row{PairLoss::nca_pair, nca_pair, true},
      Row{PairLoss::bco_pair, bco_pair, true},
      Row{PairLoss::sppo_hard, sppo_hard, true},
      Row{PairLoss::apo_zero, apo_zero, true},
      Row{PairLoss::apo_down, apo_down, true},
      Row{PairLoss::discopop, discopop, true},
      Row{PairLoss::sft, nothing, false, Likelihood::reply},
      Row{PairLoss::orpo, orpo, false, Likelihood::whole},
      Row{PairLoss::simpo, simpo, false},
  };
  return *std::ranges::find(kRows, loss, &Row::loss);
}

Terms terms_of(const PairSums& s, const PairOptions& options) {
  const Dual chosen{s.chosen, 1, 0}, rejected{s.rejected, 0, 1};
  const Dual chosen_ratio = chosen - s.reference_chosen, rejected_ratio = rejected - s.reference_rejected;
  return {.chosen_ratio = chosen_ratio,
          .rejected_ratio = rejected_ratio,
          .chosen_ratio_of_token = 1 / s.chosen_tokens * chosen_ratio,
          .rejected_ratio_of_token = 1 / s.rejected_tokens * rejected_ratio,
          .chosen_of_token = 1 / s.chosen_tokens * chosen,
          .rejected_of_token = 1 / s.rejected_tokens * rejected,
          .o = options};
}

}  // namespace

bool Objective::needs_reference() const {
  return std::ranges::any_of(pairs, [](const WeightedPairLoss& p) { return row_of(p.loss).needs_reference; });
}

bool Objective::rewards_are_means() const {
  const auto is_mean = [](const WeightedPairLoss& p) { return p.loss == PairLoss::orpo || p.loss == PairLoss::simpo; };
  return !needs_reference() && std::ranges::any_of(pairs, is_mean);
}

bool Objective::compares_replies() const {
  return std::ranges::any_of(pairs, [](const WeightedPairLoss& p) { return p.loss != PairLoss::sft; });
}

double Objective::likelihood_weight() const {
  double sum = 0;
  for (const WeightedPairLoss& p : pairs)
    if (row_of(p.loss).likelihood != Likelihood::none) sum += p.weight;
  return sum;
}

int64_t Objective::target_rows() const {
  return is_pairs() ? int64_t{PairInput::end} : is_policy() ? int64_t{PolicyInput::end} : 1;
}

Likelihood likelihood_of(PairLoss loss) { return row_of(loss).likelihood; }

PairJudgement judge_pair(const Objective& objective, const PairSums& sums) {
  const Terms terms = terms_of(sums, objective.options);
  Dual loss;
  for (const WeightedPairLoss& p : objective.pairs) loss = loss + p.weight * row_of(p.loss).of(terms);
  const bool by_mean = objective.rewards_are_means();
  const double beta = objective.options.beta;
  return {.loss = loss.value,
          .d_chosen = loss.chosen,
          .d_rejected = loss.rejected,
          .chosen_reward = beta * (by_mean ? terms.chosen_of_token : terms.chosen_ratio).value,
          .rejected_reward = beta * (by_mean ? terms.rejected_of_token : terms.rejected_ratio).value};
}

std::span<const char* const> pair_measures() {
  static constexpr const char* kNames[] = {"rewards/chosen",  "rewards/rejected", "rewards/accuracies",
                                           "rewards/margins", "logps/chosen",     "logps/rejected",
                                           "likelihood"};
  return kNames;
}

}  // namespace trireme::model
