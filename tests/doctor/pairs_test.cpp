#include "trireme/doctor/pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace trireme::doctor {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Pair;
using testing::SizeIs;

std::vector<int> hosts(int count, int ranks_each) {
  std::vector<int> of_rank;
  for (int i = 0; i < count * ranks_each; ++i) of_rank.push_back(i / ranks_each);
  return of_rank;
}

TEST(ChoosePairs, FewRanksAreAllPaired) {
  EXPECT_THAT(choose_pairs(hosts(1, 1)), SizeIs(0));
  EXPECT_THAT(choose_pairs(hosts(1, 3)), ElementsAre(Pair(0, 1), Pair(0, 2), Pair(1, 2)));
  EXPECT_THAT(choose_pairs(hosts(4, 2)), SizeIs(28));
}

TEST(ChoosePairs, OfManyRanksNeighboursAndTheFirstOfEachHost) {
  EXPECT_THAT(choose_pairs(hosts(3, 4)),
              ElementsAre(Pair(0, 1), Pair(0, 4), Pair(0, 8), Pair(1, 2), Pair(2, 3), Pair(4, 5), Pair(4, 8),
                          Pair(5, 6), Pair(6, 7), Pair(8, 9), Pair(9, 10), Pair(10, 11)));
}

TEST(ChoosePairs, HundredsOfHostsTakeAPairOrTwoEach) {
  const auto pairs = choose_pairs(hosts(200, 1));
  EXPECT_THAT(pairs, SizeIs(199 + 198));
  EXPECT_THAT(pairs, IsSupersetOf({std::pair(0, 199), std::pair(198, 199)}));
}

TEST(MeasurePair, BothRanksGetTheSameFigures) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  PairResult results[2];
  const auto measure = [&](int rank) {
    results[rank] = measure_pair({0, 1}, {.name = "", .backend = "threads", .rank = rank, .size = 2, .store = store});
  };
  std::thread other(measure, 1);
  measure(0);
  other.join();
  EXPECT_EQ(results[0].problem, "");
  EXPECT_EQ(write_pair(results[0]), write_pair(results[1]));
  EXPECT_EQ(results[0].backend, "threads");
  EXPECT_GT(results[0].latency_seconds, 0);
  EXPECT_GT(results[0].forth_rate, 1e6);
  EXPECT_GT(results[0].back_rate, 1e6);
  EXPECT_LE(std::abs(results[0].clock_seconds), results[0].clock_error_seconds + 1e-6);
  EXPECT_EQ(write_pair(read_pair(write_pair(results[0]))), write_pair(results[0]));
}

TEST(MeasurePair, APartnerWhoDoesNotComeIsAResult) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const PairResult result = measure_pair({3, 5}, {.name = "",
                                                  .backend = "threads",
                                                  .rank = 5,
                                                  .size = 6,
                                                  .store = store,
                                                  .timeout = std::chrono::milliseconds(100)});
  EXPECT_THAT(result.problem, testing::HasSubstr("global rank 3"));
}

}  // namespace
}  // namespace trireme::doctor
