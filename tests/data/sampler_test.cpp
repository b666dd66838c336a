#include "trireme/data/sampler.h"
#include "trireme/base/mix64.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "refusal.h"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

TEST(Sampler, EverySampleComesOncePerEpoch) {
  for (const int64_t size : {1, 2, 17, 311}) {
    const Sampler sampler(size, 42);
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      std::set<int64_t> seen;
      for (int64_t i = 0; i < size; ++i) {
        const Draw draw = sampler(epoch * size + i);
        ASSERT_EQ(draw.epoch, epoch);
        ASSERT_TRUE(draw.index >= 0 && draw.index < size);
        seen.insert(draw.index);
      }
      ASSERT_EQ(static_cast<int64_t>(seen.size()), size);
    }
  }
}

TEST(Sampler, SeedsAndEpochsGiveDifferentOrders) {
  const Sampler a(1000, 1), b(1000, 2);
  int same_seed = 0, same_epoch = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    same_seed += a(i).index == b(i).index;
    same_epoch += a(i).index == a(1000 + i).index;
  }
  EXPECT_LT(same_seed, 20);
  EXPECT_LT(same_epoch, 20);
}

TEST(Sampler, TheOrderOfASeedNeverChanges) {
  // Written down once: a checkpoint of any version goes on in the order that it began with.
  const Sampler sampler(1000, 42);
  std::vector<int64_t> first;
  for (int64_t i = 0; i < 6; ++i) first.push_back(sampler(i).index);
  EXPECT_EQ(first, (std::vector<int64_t>{485, 87, 604, 670, 981, 371}));
}

TEST(Sampler, EachSourceOfAMixtureRunsThroughItsOwnEpochs) {
  const std::vector<int64_t> sizes = {7, 50, 3};
  const Sampler sampler(sizes, {0.5, 0.3, 0.2}, 9);
  std::vector<std::vector<Draw>> of(3);
  for (int64_t g = 0; g < 1000; ++g) of[static_cast<size_t>(sampler(g).source)].push_back(sampler(g));
  EXPECT_EQ(of[0].size(), 500u);
  EXPECT_EQ(of[1].size(), 300u);
  EXPECT_EQ(of[2].size(), 200u);
  for (size_t s = 0; s < 3; ++s) {
    for (size_t begin = 0; begin + static_cast<size_t>(sizes[s]) <= of[s].size();
         begin += static_cast<size_t>(sizes[s])) {
      std::set<int64_t> seen;
      for (size_t i = begin; i < begin + static_cast<size_t>(sizes[s]); ++i) {
        ASSERT_EQ(of[s][i].epoch, static_cast<int64_t>(begin) / sizes[s]);
        seen.insert(of[s][i].index);
      }
      ASSERT_EQ(static_cast<int64_t>(seen.size()), sizes[s]) << "source " << s;
    }
  }
}

// Tijdeman's bound, at every turn of two periods.
void expect_fair(const std::vector<double>& weights) {
  const Interleaving order(weights);
  const auto n = weights.size();
  const double bound = n > 1 ? 1 - 1 / (2.0 * double(n) - 2) : 0,
               total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> dealt(n, 0);
  const int64_t turns = std::min<int64_t>(2 * order.period() + 3, 200'000);
  for (int64_t turn = 0; turn < turns; ++turn) {
    const Interleaving::Turn t = order(turn);
    ASSERT_EQ(t.before, dealt[static_cast<size_t>(t.source)]++);
    for (size_t i = 0; i < n; ++i) {
      const double share = weights[i] / total * double(turn + 1);
      ASSERT_LE(std::abs(double(dealt[i]) - share), bound + 1e-6 * double(turn + 1))
          << "source " << i << " turn " << turn;
    }
  }
}

TEST(Interleaving, EveryPrefixHasTheRightShares) {
  expect_fair({1});
  expect_fair({1, 1});
  expect_fair({0.7, 0.3});
  expect_fair({0.693584, 0.306416});
  expect_fair({5, 1, 1, 1, 1, 1});
  expect_fair({0.01, 0.98, 0.01});
  expect_fair({1 / 3.0, 2 / 3.0, std::sqrt(2.0)});
  uint64_t random = 1;
  for (int round = 0; round < 40; ++round) {
    std::vector<double> weights(1 + round % 9);
    for (double& weight : weights) weight = double(1 + (random = base::mix64(random + 1)) % 1000) / 100;
    expect_fair(weights);
  }
}

// Straight from the definition: every source is looked at for every turn.
std::vector<int> dealt_slowly(const std::vector<int64_t>& counts) {
  int64_t period = 0;
  for (const int64_t count : counts) period += count;
  const int64_t unit = 2 * std::max<int64_t>(1, std::ssize(counts) - 1);
  std::vector<int64_t> dealt(counts.size());
  std::vector<int> turns;
  for (int64_t turn = 1; turn <= period; ++turn) {
    size_t chosen = counts.size();
    double earliest = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < counts.size(); ++i) {
      const int64_t behind = unit * (counts[i] * turn - dealt[i] * period);
      if (behind < period) continue;
      const double due = static_cast<double>(unit * period - period - behind) / static_cast<double>(counts[i]);
      if (due < earliest) earliest = due, chosen = i;
    }
    ++dealt[chosen];
    turns.push_back(static_cast<int>(chosen));
  }
  return turns;
}

TEST(Interleaving, TheOrderIsThatOfTheDefinition) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> weights;
    const size_t n = 1 + random() % (trial < 290 ? 40 : 600);
    const bool fractions = trial % 3 == 0 && trial % 30 == 0;  // of the longest period
    for (size_t i = 0; i < n; ++i)
      weights.push_back(fractions ? std::sqrt(1.0 + random() % 100)
                                  : 1 + static_cast<int>(random() % (1u << trial % 7)));
    const Interleaving order(weights);
    if (order.period() * static_cast<int64_t>(n) > 40'000'000) continue;
    std::vector<int> turns;
    for (int64_t turn = 0; turn < order.period(); ++turn) turns.push_back(order(turn).source);
    ASSERT_EQ(turns, dealt_slowly(order.counts())) << trial;
  }
}

TEST(Interleaving, AThousandSourcesAreDealtInTime) {
  std::vector<double> weights;
  for (int i = 0; i < 5000; ++i) weights.push_back(std::sqrt(i + 2.0));
  EXPECT_EQ(Interleaving(weights).period(), int64_t{1} << 20);
  EXPECT_EQ(Interleaving(std::vector<double>(5000, 1.0)).period(), 5000);
}

TEST(Interleaving, DecimalWeightsAreKeptExactly) {
  EXPECT_EQ(Interleaving({0.7, 0.3}).counts(), (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(Interleaving({70, 30}).counts(), (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(Interleaving({0.693584, 0.306416}).counts(), (std::vector<int64_t>{43349, 19151}));
  EXPECT_EQ(Interleaving({1 / 3.0, 2 / 3.0}).period(), int64_t{1} << 20);
}

TEST(Interleaving, RefusesWeightsThatAreNone) {
  EXPECT_THAT(refusal([] { Interleaving({}); }), HasSubstr("a mixture of 0 sources"));
  for (const double weight : {0.0, -1.0, double(NAN), double(INFINITY)})
    EXPECT_THAT(refusal([&] { Interleaving({1, weight}); }), HasSubstr("must be above 0 and finite"));
}

TEST(Interleaving, TheSmallestWeightStillGetsTurns) {
  const Interleaving order({1, 1e-12});
  EXPECT_EQ(order.counts()[1], 1);
}

}  // namespace
}  // namespace trireme::data
