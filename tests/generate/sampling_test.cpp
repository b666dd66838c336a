#include "trireme/generate/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "trireme/base/error.h"

namespace trireme::generate {
namespace {

std::map<int64_t, double> shares(const std::vector<float>& logits, const Sampling& sampling, int draws = 20000) {
  std::map<int64_t, double> seen;
  for (int i = 0; i < draws; ++i) seen[draw(logits, sampling, {.prompt = 3, .position = i})] += 1.0 / draws;
  return seen;
}

TEST(Sampling, TemperatureZeroTakesTheLikeliestAndTheFirstOfEquals) {
  EXPECT_EQ(draw(std::vector<float>{0, 3, 1, 3}, {.temperature = 0}, {}), 1);
}

TEST(Sampling, DrawsHaveTheProbabilitiesOfTheSoftmax) {
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f};
  double total = 0;
  for (const float x : logits) total += std::exp(x / 0.7);
  const auto seen = shares(logits, {.temperature = 0.7});
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(seen.at(static_cast<int64_t>(i)), std::exp(logits[i] / 0.7) / total, 0.012) << i;
}

// What transformers' processors keep, from their formulas over a whole sort.
std::vector<bool> kept_by_formula(const std::vector<float>& logits, const Sampling& s) {
  const size_t n = logits.size();
  std::vector<size_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> p(n);
  double total = 0;
  const size_t most = s.top_k ? std::min<size_t>(n, static_cast<size_t>(*s.top_k)) : n;
  for (size_t i = 0; i < most; ++i) total += p[order[i]] = std::exp(logits[order[i]] / s.temperature);
  std::vector<bool> kept(n, false);
  double before = 0;
  for (size_t i = 0; i < most; ++i) {
    if (i > 0 && (before >= s.top_p * total || p[order[i]] < s.min_p * p[order[0]])) break;
    kept[order[i]] = true;
    before += p[order[i]];
  }
  return kept;
}

TEST(Sampling, TopKTopPAndMinPKeepWhatTheirFormulasKeep) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 60; ++round) {
    std::vector<float> logits(1 + random() % 200);
    for (float& x : logits) x = 2 * normal(random);
    Sampling s{.temperature = 0.3 + 0.1 * double(random() % 15)};
    if (random() % 2 == 0) s.top_k = 1 + random() % 80;
    if (random() % 2 == 0) s.top_p = 0.05 + 0.01 * double(random() % 95);
    if (random() % 2 == 0) s.min_p = 0.01 * double(random() % 60);
    const std::vector<bool> kept = kept_by_formula(logits, s);
    for (const auto& [token, share] : shares(logits, s, 600)) EXPECT_TRUE(kept[static_cast<size_t>(token)]) << round;
    // The least likely of those that are kept comes, too: draws that point to the end.
    std::map<int64_t, double> many = shares(logits, s, 6000);
    double total = 0;
    for (size_t i = 0; i < kept.size(); ++i) total += kept[i] ? std::exp(logits[i] / s.temperature) : 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      const double expected = kept[i] ? std::exp(logits[i] / s.temperature) / total : 0;
      EXPECT_NEAR(many[static_cast<int64_t>(i)], expected, 0.03);
    }
  }
}

TEST(Sampling, AreFunctionsOfSeedPromptSampleAndPosition) {
  const std::vector<float> logits(500, 0.0f);
  const Sampling sampling{.temperature = 1, .seed = 9};
  const int64_t one = draw(logits, sampling, {1, 2, 3});
  EXPECT_EQ(draw(logits, sampling, {1, 2, 3}), one);
  EXPECT_NE(draw(logits, sampling, {1, 2, 4}), one);
  EXPECT_NE(draw(logits, sampling, {1, 3, 3}), one);
  EXPECT_NE(draw(logits, sampling, {2, 2, 3}), one);
  EXPECT_NE(draw(logits, {.temperature = 1, .seed = 10}, {1, 2, 3}), one);
}

TEST(Sampling, PenalizesEachSeenTokenOnce) {
  std::vector<float> logits = {2, -2, 1, 4};
  penalize(logits, std::vector<int64_t>{0, 1, 0, 0}, 2);
  EXPECT_EQ(logits, (std::vector<float>{1, -4, 1, 4}));
}

TEST(Sampling, RefusesLogitsThatAreNoNumbers) {
  EXPECT_THROW(draw(std::vector<float>{0, NAN}, {}, {}), ShapeError);
  EXPECT_THROW(draw(std::vector<float>{-INFINITY, -INFINITY}, {}, {}), ShapeError);
}

}  // namespace
}  // namespace trireme::generate
