#include "trireme/data/interleaving.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <set>

#include "trireme/base/error.h"

namespace trireme::data {
namespace {

constexpr int64_t kLongestPeriod = int64_t{1} << 20;

// Whole numbers in the weights' proportions; empty if the weights have more than six decimals.
std::vector<int64_t> as_decimals(const std::vector<double>& weights) {
  for (double scale = 1; scale <= 1e6; scale *= 10) {
    std::vector<int64_t> counts;
    int64_t divisor = 0;
    for (const double weight : weights) {
      const double scaled = weight * scale, whole = std::round(scaled);
      if (whole < 1 || whole > 1e15 || std::abs(scaled - whole) > 1e-9 * scaled) break;
      counts.push_back(static_cast<int64_t>(whole));
      divisor = std::gcd(divisor, counts.back());
    }
    if (counts.size() != weights.size()) continue;
    for (int64_t& count : counts) count /= divisor;
    return counts;
  }
  return {};
}

// Divides the longest period in proportion: whole parts first, the rest by largest remainders. Each source gets some.
std::vector<int64_t> by_largest_remainder(const std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> counts;
  std::vector<std::pair<double, size_t>> remainders;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = weights[i] / total * static_cast<double>(kLongestPeriod);
    counts.push_back(std::max<int64_t>(1, static_cast<int64_t>(share)));
    remainders.emplace_back(static_cast<double>(counts.back()) - share, i);
  }
  std::sort(remainders.begin(), remainders.end());
  const int64_t left = kLongestPeriod - std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (int64_t i = 0; i < left; ++i) ++counts[remainders[static_cast<size_t>(i)].second];
  for (int64_t i = left; i < 0; ++i) --*std::max_element(counts.begin(), counts.end());
  return counts;
}

std::vector<int64_t> whole_weights(const std::vector<double>& weights) {
  std::vector<int64_t> counts = as_decimals(weights);
  double sum = 0;
  for (const int64_t count : counts) sum += static_cast<double>(count);
  return counts.empty() || sum > static_cast<double>(kLongestPeriod) ? by_largest_remainder(weights) : counts;
}

// A source that may have the next turn. It is due at due / count, counted from a turn that is the same for all.
struct Candidate {
  int64_t due, count;
  size_t source;

  bool operator<(const Candidate& other) const {
    const auto mine = static_cast<__int128>(due) * other.count, theirs = static_cast<__int128>(other.due) * count;
    return mine != theirs ? mine < theirs : source < other.source;
  }
};

}  // namespace

Interleaving::Interleaving(const std::vector<double>& weights) {
  if (weights.empty() || weights.size() > std::numeric_limits<uint16_t>::max())
    throw UsageError(fmt::format("a mixture of {} sources; pass the weights of 1 to 65535", weights.size()));
  for (const double weight : weights)
    if (!(weight > 0 && std::isfinite(weight)))
      throw UsageError(fmt::format(
          "the weight {} of a source must be above 0 and finite; leave out sources without weight", weight));
  counts_ = whole_weights(weights);
  deal();
}

void Interleaving::deal() {
  const int64_t period = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  const auto n = static_cast<int64_t>(counts_.size());
  std::vector<int64_t> dealt(counts_.size(), 0);
  // All numbers count units of 1 / (2 (n - 1) period) turns. A source is a candidate if it is behind its share by at
  // least 1/(2n - 2) turns. The candidate whose turn becomes overdue first gets the turn.
  const int64_t unit = 2 * std::max<int64_t>(1, n - 1);
  using Waiting = std::pair<int64_t, size_t>;  // from which turn on a source is a candidate
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting;
  std::set<Candidate> candidates;
  const auto wait = [&](size_t i) {
    const int64_t needs = period + unit * dealt[i] * period, a_turn = unit * counts_[i];
    waiting.emplace((needs + a_turn - 1) / a_turn, i);
  };
  for (size_t i = 0; i < counts_.size(); ++i) wait(i);
  for (int64_t turn = 1; turn <= period; ++turn) {
    for (; !waiting.empty() && waiting.top().first <= turn; waiting.pop()) {
      const size_t i = waiting.top().second;
      candidates.insert({.due = unit * period - period + unit * dealt[i] * period, .count = counts_[i], .source = i});
    }
    check_invariant(!candidates.empty(), "some source is always due");
    const auto rounded = [&](const Candidate& c) {
      return static_cast<double>(c.due - unit * c.count * turn) / static_cast<double>(c.count);
    };
    // Those that are due first up to rounding: among them the first source counts, as it always has.
    auto chosen = candidates.begin();
    const double earliest = rounded(*chosen);
    for (auto next = chosen; next != candidates.end() && rounded(*next) == earliest;) {
      if (next->source < chosen->source) chosen = next;
      next = candidates.upper_bound({.due = next->due, .count = next->count, .source = counts_.size()});
    }
    const size_t source = chosen->source;
    candidates.erase(chosen);
    sources_.push_back(static_cast<uint16_t>(source));
    before_.push_back(static_cast<int32_t>(dealt[source]++));
    wait(source);
  }
}

Interleaving::Turn Interleaving::operator()(int64_t turn) const {
  const int64_t period = this->period();
  const auto place = static_cast<size_t>(turn % period);
  const uint16_t source = sources_[place];
  return {.source = source, .before = turn / period * counts_[source] + before_[place]};
}

}  // namespace trireme::data
