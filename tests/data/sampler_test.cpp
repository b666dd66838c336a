#include "trireme/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace trireme::data {
namespace {

TEST(Sampler, EverySampleComesOncePerEpochAndWindowsShareNoTarget) {
  const Sampler sampler(10'007, 32, 42);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < sampler.samples_per_epoch(); ++i) {
      starts.push_back(sampler.sample(epoch * sampler.samples_per_epoch() + i));
    }
    std::sort(starts.begin(), starts.end());
    EXPECT_EQ(starts.front(), sampler.epoch_offset(epoch));
    for (size_t i = 1; i < starts.size(); ++i) ASSERT_EQ(starts[i] - starts[i - 1], 32);
  }
}

TEST(Sampler, WindowsStayInsideTheText) {
  for (const int64_t sequence : {1, 2, 7, 64}) {
    for (int64_t tokens = sequence + 1; tokens < 5 * sequence + 3; ++tokens) {
      const Sampler sampler(tokens, sequence, 3);
      ASSERT_GE(sampler.samples_per_epoch(), 1);
      for (int64_t i = 0; i < 40 * sampler.samples_per_epoch(); ++i) {
        const int64_t start = sampler.sample(i);
        ASSERT_GE(start, 0);
        ASSERT_LE(start + sequence, tokens - 1) << tokens << " tokens, sequence " << sequence;
      }
    }
  }
}

TEST(Sampler, EpochsUseOtherOffsetsAndOtherOrders) {
  const Sampler sampler(100'000, 100, 42);
  std::set<int64_t> offsets;
  int same_place = 0;
  for (int64_t epoch = 0; epoch < 50; ++epoch) offsets.insert(sampler.epoch_offset(epoch));
  for (int64_t i = 0; i < sampler.samples_per_epoch(); ++i) {
    same_place += sampler.sample(i) / 100 == sampler.sample(sampler.samples_per_epoch() + i) / 100;
  }
  EXPECT_GT(offsets.size(), 25u);
  EXPECT_LT(same_place, 20);
}

TEST(Sampler, SeedsGiveDifferentOrders) {
  const Sampler a(100'000, 100, 1), b(100'000, 100, 2);
  int same = 0;
  for (int64_t i = 0; i < 900; ++i) same += a.sample(i) == b.sample(i);
  EXPECT_LT(same, 20);
}

}  // namespace
}  // namespace trireme::data
