#include "trireme/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/mix64.h"
#include "trireme/config/value.h"
#include "trireme/generate/settings.h"

namespace trireme::generate {
namespace {

/// Uniform in [0, 1).
double uniform(const Sampling& sampling, const Draw& which) {
  const uint64_t key = base::mix_key(base::mix_key(base::mix_key(sampling.seed, which.prompt), which.sample),
                                     static_cast<uint64_t>(which.position));
  return static_cast<double>(key >> 11) * 0x1p-53;
}

/// Orders tokens from the likeliest on, as many as are asked for.
class Ranking {
 public:
  explicit Ranking(std::span<const float> logits) : logits_(logits), ids_(logits.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
  }
  int64_t operator[](size_t place) {
    if (place >= ordered_) order(std::min(ids_.size(), std::max<size_t>(2 * ordered_, place + 64)));
    return ids_[place];
  }

 private:
  void order(size_t count) {
    const auto before = [this](int64_t a, int64_t b) {
      const float x = logits_[static_cast<size_t>(a)], y = logits_[static_cast<size_t>(b)];
      return x > y || (x == y && a < b);
    };
    const auto begin = ids_.begin() + static_cast<int64_t>(ordered_), end = ids_.begin() + static_cast<int64_t>(count);
    if (end != ids_.end()) std::nth_element(begin, end, ids_.end(), before);
    std::sort(begin, end, before);
    ordered_ = count;
  }
  std::span<const float> logits_;
  std::vector<int64_t> ids_;
  size_t ordered_ = 0;
};

size_t likeliest(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) throw ShapeError("a logit is NaN: the model's weights are damaged");
    if (logits[i] > logits[best]) best = i;
  }
  if (!std::isfinite(logits[best])) throw ShapeError("no logit is finite: the model's weights are damaged");
  return best;
}

}  // namespace

void check(const Sampling& s) {
  const auto check = [](std::string_view name, const config::Rules& rules, double value) {
    if (const auto refusal = config::check_number(name, rules, value)) throw UsageError(refusal->headline);
  };
  check("repetition_penalty", bounds::repetition_penalty(), s.repetition_penalty);
  check("temperature", bounds::temperature(), s.temperature);
  if (s.top_k) check("top_k", {.at_least = 1}, static_cast<double>(*s.top_k));
  check("top_p", bounds::top_p(), s.top_p);
  check("min_p", bounds::min_p(), s.min_p);
}

void penalize(std::span<float> logits, std::span<const int64_t> seen, double penalty) {
  if (penalty == 1) return;
  std::vector<bool> done(logits.size());  // a token that is there twice counts once
  for (const int64_t id : seen) {
    if (done[static_cast<size_t>(id)]) continue;
    done[static_cast<size_t>(id)] = true;
    float& logit = logits[static_cast<size_t>(id)];
    logit = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
}

int64_t draw(std::span<const float> logits, const Sampling& s, const Draw& which) {
  const size_t best = likeliest(logits);
  if (s.temperature <= 0) return static_cast<int64_t>(best);
  const double top = logits[best];
  const auto weight = [&](size_t id) { return std::exp((double(logits[id]) - top) / s.temperature); };
  const double u = uniform(s, which);
  const auto count = static_cast<int64_t>(logits.size());
  const int64_t most = s.top_k ? std::clamp<int64_t>(*s.top_k, 1, count) : count;
  if (most == count && s.top_p >= 1) {  // no order is needed
    double total = 0;
    for (size_t i = 0; i < logits.size(); ++i)
      if (const double w = weight(i); w >= s.min_p) total += w;
    double left = u * total;
    size_t last = best;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double w = weight(i);
      if (w < s.min_p || w == 0) continue;
      last = i;
      left -= w;
      if (left < 0) break;
    }
    return static_cast<int64_t>(last);
  }
  Ranking ranking(logits);
  double total = 0;
  if (most == count)
    for (size_t i = 0; i < logits.size(); ++i) total += weight(i);
  else
    for (int64_t i = 0; i < most; ++i) total += weight(static_cast<size_t>(ranking[static_cast<size_t>(i)]));
  std::vector<double> kept;
  double reached = 0;
  for (int64_t i = 0; i < most; ++i) {
    const double w = weight(static_cast<size_t>(ranking[static_cast<size_t>(i)]));
    if (i > 0 && (reached >= s.top_p * total || w < s.min_p)) break;
    kept.push_back(w);
    reached += w;
  }
  double left = u * reached;
  size_t place = 0;
  while (place + 1 < kept.size() && (left -= kept[place]) >= 0) ++place;
  return ranking[place];
}

}  // namespace trireme::generate
