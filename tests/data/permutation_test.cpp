#include "trireme/data/permutation.h"
#include "trireme/base/mix64.h"

#include <gtest/gtest.h>

#include <unordered_set>
#include <vector>

namespace trireme::data {
namespace {

TEST(Permutation, IsABijectionForEverySmallSize) {
  for (int64_t n = 1; n <= 1000; ++n) {
    const Permutation order(n, static_cast<uint64_t>(n) * 7919);
    std::vector<bool> seen(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = order(i);
      ASSERT_GE(at, 0);
      ASSERT_LT(at, n);
      ASSERT_FALSE(seen[static_cast<size_t>(at)]) << "n " << n << " hits " << at << " twice";
      seen[static_cast<size_t>(at)] = true;
    }
  }
}

TEST(Permutation, HitsNothingTwiceAndStaysInsideForLargeSizes) {
  for (const int64_t n : {int64_t{1} << 20, (int64_t{1} << 32) + 1, int64_t{3'000'000'019}, int64_t{1} << 62}) {
    const Permutation order(n, 42);
    std::unordered_set<int64_t> seen;
    for (int64_t i = 0; i < 20'000; ++i) {
      const int64_t at = order(n / 20'000 * i);
      ASSERT_TRUE(at >= 0 && at < n);
      ASSERT_TRUE(seen.insert(at).second) << "n " << n;
    }
  }
}

TEST(Permutation, KeysGiveDifferentOrdersAndTheSameKeyTheSame) {
  const Permutation a(1000, 1), again(1000, 1), b(1000, 2);
  int same = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a(i), again(i));
    same += a(i) == b(i);
  }
  EXPECT_LT(same, 20);  // one is expected by chance
}

TEST(Permutation, SpreadsEveryIndexEvenlyOverKeys) {
  constexpr int64_t kSize = 10;
  constexpr int kKeys = 20'000;
  for (int64_t index = 0; index < kSize; ++index) {
    int hits[kSize] = {};
    for (uint64_t key = 0; key < kKeys; ++key) ++hits[Permutation(kSize, base::mix_key(5, key))(index)];
    double chi2 = 0;
    for (const int h : hits) chi2 += (h - 2000.0) * (h - 2000.0) / 2000.0;
    EXPECT_LT(chi2, 40) << "index " << index;  // 9 degrees of freedom: beyond 40 in 1 of 100,000 cases
  }
}

// The order is part of what a checkpoint means: a change here changes where a resumed run goes on.
TEST(Permutation, OrderIsTheDocumentedOne) {
  const Permutation order(10, base::mix_key(42, 0));
  std::vector<int64_t> first;
  for (int64_t i = 0; i < 10; ++i) first.push_back(order(i));
  EXPECT_EQ(first, (std::vector<int64_t>{7, 8, 2, 1, 9, 3, 5, 0, 6, 4}));
}

}  // namespace
}  // namespace trireme::data
