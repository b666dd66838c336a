#include "trireme/launch/machines/room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/job.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(Room, SixteenRanksStartAnywhereAndEightACoreOnLargerMachines) {
  const auto fits = [](int cores, int ranks) {
    return !lacks_room({.cores = cores, .free_bytes = 1000 * kGiB}, {.num_ranks = ranks});
  };
  EXPECT_TRUE(fits(1, 16));
  EXPECT_FALSE(fits(1, 17));
  EXPECT_TRUE(fits(2, 16));
  EXPECT_FALSE(fits(2, 17));
  EXPECT_TRUE(fits(8, 64));
  EXPECT_FALSE(fits(8, 65));
}

TEST(Room, WhatRanksPlanAndWhatEachNeedsForItselfHasToBeFree) {
  const HostRoom room{.cores = 8, .free_bytes = 4 * kGiB};
  const std::int64_t own = 4 * kBytesOfARank;
  EXPECT_FALSE(lacks_room(room, {.num_ranks = 4, .planned_bytes = 4 * kGiB - own}));
  const auto why = lacks_room(room, {.num_ranks = 4, .planned_bytes = 4 * kGiB - own + 1});
  ASSERT_TRUE(why);
  EXPECT_THAT(*why, AllOf(HasSubstr("4 ranks"), HasSubstr("4.00 GiB are free"), HasSubstr("planned"),
                          HasSubstr("--launch.oversubscribe true")));
  EXPECT_THAT(*lacks_room({.cores = 8, .free_bytes = 1, .is_limited = true}, {}),
              HasSubstr("limit of the control group"));
}

TEST(Room, OfAnotherProgramOnlyTheNumberIsKnown) {
  EXPECT_FALSE(lacks_room({.cores = 2, .free_bytes = 0}, {.num_ranks = 16, .bytes_of_a_rank = 0}));
  EXPECT_TRUE(lacks_room({.cores = 2, .free_bytes = 0}, {.num_ranks = 17, .bytes_of_a_rank = 0}));
}

TEST(Room, TooManyAreRefusedWithCoresAndMemoryBeforeOneStarts) {
  testing::Job job({"--launch", "1000", "--", "*:print:started"});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("1,000 ranks"), HasSubstr("core"), HasSubstr("GiB")));
  EXPECT_EQ(testing::count(job.out() + job.err(), "started"), 0);
}

TEST(Room, NobodyIsAllowedMoreThanALaunchersDescriptorsServe) {
  EXPECT_THROW(require_room({.num_ranks = kMostRanksOnOneHost + 1}, true), UsageError);
  EXPECT_THROW(require_room({.num_ranks = 0}, true), UsageError);
  EXPECT_NO_THROW(require_room({.num_ranks = kMostRanksOnOneHost}, true));
}

}  // namespace
}  // namespace trireme::launch
