#include "trireme/observe/core_time.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <numeric>

#include "../checkpoint/thread_ranks.h"

namespace trireme::observe {
namespace {

using checkpoint::run_ranks;

std::vector<int> cpus(int first, int count) {
  std::vector<int> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return CPU_COUNT(&set);
}

TEST(CoreTime, RanksThatWanderOverTheSameCpusShareThem) {
  const std::vector<CoreClaim> fit(4, {.threads = 2, .cpus = cpus(0, 8)}), many(4, {.threads = 4, .cpus = cpus(0, 8)});
  EXPECT_DOUBLE_EQ(core_time(fit, 0), 1);
  EXPECT_DOUBLE_EQ(core_time(many, 3), 0.5);
}

TEST(CoreTime, PinnedRanksShareNothingButTheirOwnThreads) {
  std::vector<CoreClaim> claims;
  for (int rank = 0; rank < 4; ++rank) claims.push_back({.threads = 2, .cpus = cpus(2 * rank, 2)});
  claims[3].threads = 6;
  EXPECT_DOUBLE_EQ(core_time(claims, 0), 1);
  EXPECT_DOUBLE_EQ(core_time(claims, 3), 1.0 / 3);
}

TEST(CoreTime, OnlyRanksOfTheSameHostAreInTheWay) {
  std::vector<CoreClaim> claims(4, {.threads = 2, .cpus = cpus(0, 2)});
  claims[2].host = claims[3].host = 7;
  EXPECT_DOUBLE_EQ(core_time(claims, 0), 0.5);
  claims[3].host = 8;
  EXPECT_DOUBLE_EQ(core_time(claims, 2), 1);
}

TEST(CoreTime, AQuotaBoundsTheRanksTogether) {
  const std::vector<CoreClaim> claims(2, {.threads = 2, .cpus = cpus(0, 8), .quota = 1.0});
  EXPECT_DOUBLE_EQ(core_time(claims, 0), 0.25);
}

TEST(CoreTime, UnknownCpusAreNobodysLoss) {
  const std::vector<CoreClaim> claims(2, {.threads = 2});
  EXPECT_DOUBLE_EQ(core_time(claims, 0), 1);
}

TEST(CoreTime, RanksTellEachOtherWhatTheyMayUse) {
  const int size = 2 * usable_cpus();
  std::vector<double> times(static_cast<size_t>(size));
  run_ranks(size, [&](comm::Communicator& world) { times[static_cast<size_t>(world.rank())] = core_time(world, 1); });
  for (const double time : times) {
    EXPECT_GT(time, 0);
    EXPECT_LE(time, 0.5 + 1e-12);
  }
}

}  // namespace
}  // namespace trireme::observe
