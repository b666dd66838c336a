#include "trireme/train/sampler_correction.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

/// Numbers as they come.
class Spread {
 public:
  void add(double value) {
    least_ = std::min(least_, value), most_ = std::max(most_, value);
    sum_ += value, count_ += 1;
  }
  double least() const { return count_ > 0 ? least_ : 0; }
  double mean() const { return count_ > 0 ? sum_ / count_ : 0; }
  double most() const { return count_ > 0 ? most_ : 0; }

 private:
  double least_ = std::numeric_limits<double>::infinity(), most_ = -least_, sum_ = 0, count_ = 0;
};

bool is_of_answers(SamplerCorrection c) {
  return c == SamplerCorrection::sequence_truncate || c == SamplerCorrection::sequence_mask;
}
bool masks(SamplerCorrection c) { return c == SamplerCorrection::token_mask || c == SamplerCorrection::sequence_mask; }

}  // namespace

std::vector<base::Measured> set_corrections(const GrpoSettings& s, std::vector<RolloutGroup>& groups) {
  const SamplerCorrection how = s.correction();
  if (how == SamplerCorrection::none) return {};
  const double least = s.sampler_is_min.value_or(0),
               most = s.sampler_is_threshold.value_or(std::numeric_limits<double>::infinity());
  Spread weights, cut, differences;
  const auto bounded = [&](double log_ratio) {
    const double ratio = std::exp(log_ratio);
    const bool is_beyond = ratio < least || ratio > most;
    const double weight = !is_beyond ? ratio : masks(how) ? 0 : std::clamp(ratio, least, most);
    weights.add(weight), cut.add(is_beyond ? 1 : 0);
    return weight;
  };
  for (RolloutGroup& group : groups)
    for (RolloutAnswer& answer : group.answers) {
      answer.correction.clear();
      if (!counts(s, group, answer)) continue;
      check_invariant(answer.sampled.size() == answer.tokens.size() && answer.logprobs.size() == answer.tokens.size(),
                      "answers to be corrected have both log-probabilities");
      double sum = 0;
      for (size_t i = 0; i < answer.tokens.size(); ++i) {
        const double difference = answer.logprobs[i] - answer.sampled[i];
        sum += difference;
        differences.add(std::abs(difference));
        if (!is_of_answers(how)) answer.correction.push_back(bounded(difference));
      }
      if (is_of_answers(how)) answer.correction.assign(answer.tokens.size(), bounded(sum));
    }
  return {{"sampler_is/min", weights.least()},
          {"sampler_is/mean", weights.mean()},
          {"sampler_is/max", weights.most()},
          {"sampler_is/cut", cut.mean()},
          {"sampler_is/logp_difference", differences.mean()},
          {"sampler_is/logp_difference_max", differences.most()}};
}

}  // namespace trireme::train
