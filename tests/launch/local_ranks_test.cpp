#include "trireme/launch/machines/local_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/data/refusal.h"
#include "tests/data/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/launch/identity/rank_setup.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/store/token.h"

namespace trireme::launch {
namespace {

using ::testing::HasSubstr;

RankEnvironment bare(int rank, int world_size) {
  RankEnvironment e;
  e.launched = e.local_is_unknown = true;
  e.global_rank = rank;
  e.world_size = world_size;
  e.master_address = "10.0.0.1";
  e.master_port = 29500;
  return e;
}

TEST(LocalRanks, RanksOfAHostAreCountedInTheirOrder) {
  const std::vector<std::string> hosts = {"a", "b", "a", "b", "a"};
  const int local[] = {0, 0, 1, 1, 2};
  for (int rank = 0; rank < 5; ++rank) {
    RankEnvironment e = bare(rank, 5);
    place_among(hosts, e);
    EXPECT_EQ(std::tuple(e.local_rank, e.local_world_size, e.node_rank, e.num_nodes),
              std::tuple(local[rank], rank % 2 == 0 ? 3 : 2, rank % 2, 2));
    EXPECT_FALSE(e.local_is_unknown);
  }
}

TEST(LocalRanks, ALocalRankThatIsSaidMustBeTheNumberOnItsHost) {
  const std::vector<std::string> hosts = {"a 1", "b 2", "a 1", "b 2"};
  EXPECT_EQ(unlike_said(hosts, {"0", "0", "1", "1"}), "");
  EXPECT_EQ(unlike_said(hosts, {"0", "", "", "1"}), "");
  EXPECT_THAT(unlike_said(hosts, {"0", "0", "1", "0"}),
              HasSubstr("rank 3 (b) has LOCAL_RANK=0, but it is number 1 of the ranks that meet from b"));
}

// What ranks 0 and 1 of this host say who meet with these LOCAL_RANKs.
std::array<std::string, 2> meet_with_local_ranks(std::array<int, 2> said_local_ranks) {
  const std::string token = store::draw_token();
  MeetingPoint point;
  std::array<std::string, 2> said;
  std::array ranks = {bare(0, 2), bare(1, 2)};  // rank 0's store lasts until both have read it
  const auto meets = [&](int rank) {
    RankEnvironment& e = ranks[static_cast<size_t>(rank)];
    e.said_local_rank = said_local_ranks[static_cast<size_t>(rank)];
    e.master_address = "127.0.0.1";
    e.master_port = point.port;
    e.token = token;
    if (rank == 0) e.store_fd = point.fd.release();
    said[static_cast<size_t>(rank)] = data::refusal([&] {
      find_local_ranks(e, {});
      EXPECT_EQ(e.local_rank, rank);
      EXPECT_EQ(e.local_world_size, 2);
    });
  };
  {
    const std::jthread other([&] { meets(1); });
    meets(0);
  }
  return said;
}

TEST(LocalRanks, RanksThatSayTheirLocalRanksMeetAndAreAllRefusedIfOneIsWrong) {
  EXPECT_THAT(meet_with_local_ranks({0, 1}), ::testing::Each("not refused"));
  EXPECT_THAT(meet_with_local_ranks({0, 0}), ::testing::Each(HasSubstr("has LOCAL_RANK=0, but it is number 1")));
}

TEST(LocalRanks, AProcessWithALocalRankIsARankAndNoLauncher) {
  ParsedSettings parsed = parse_settings(std::vector<std::string>{"--devices", "4"});
  RankEnvironment e = bare(4, 8);
  e.said_local_rank = 0;
  take_over_first_rank(parsed, e);
  EXPECT_TRUE(e.launched);
}

TEST(LocalRanks, AMachinesFirstRankWithDevicesIsItsLauncher) {
  ParsedSettings parsed = parse_settings(std::vector<std::string>{"--devices", "4"});
  RankEnvironment e = bare(4, 8);
  take_over_first_rank(parsed, e);
  EXPECT_FALSE(e.launched);
  EXPECT_EQ(parsed.settings.num_nodes, 2);
  EXPECT_EQ(parsed.settings.launch.node_rank, 1);
  EXPECT_EQ(parsed.settings.launch.master_addr, "10.0.0.1");
  EXPECT_EQ(parsed.settings.launch.master_port, 29500);
}

TEST(LocalRanks, DevicesOfTheWholeWorldMeanAProcessARank) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{}, {"--devices", "8"}, {"--devices", "4", "--num_nodes", "2"}}) {
    ParsedSettings parsed = parse_settings(words);
    RankEnvironment e = bare(4, 8);
    take_over_first_rank(parsed, e);
    EXPECT_TRUE(e.launched);
  }
}

TEST(LocalRanks, DevicesThatDoNotDivideAreRefused) {
  ParsedSettings parsed = parse_settings(std::vector<std::string>{"--devices", "4"});
  RankEnvironment e = bare(2, 8);
  try {
    take_over_first_rank(parsed, e);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("RANK=2 and WORLD_SIZE=8 with devices 4"));
  }
}

// Rank 0 of two, whose other rank never comes.
RankEnvironment lonely() {
  RankEnvironment e = bare(0, 2);
  MeetingPoint point;
  e.master_address = "127.0.0.1";
  e.master_port = point.port;
  e.store_fd = point.fd.release();
  e.token = store::draw_token();
  return e;
}

TEST(LocalRanks, ARankThatDoesNotComeIsNamedWithTheWayOut) {
  RankEnvironment e = lonely();
  Settings settings;
  settings.launch.join_timeout = std::chrono::milliseconds(100);
  try {
    find_local_ranks(e, settings);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 has not come within 0.1s; see that each machine has started its ranks "
                                        "and reaches 127.0.0.1:"));
    EXPECT_THAT(error.what(), HasSubstr("raise launch.join_timeout"));
  }
}

TEST(LocalRanks, ARankThatWaitsForOthersSaysSoAndEndsWhenItIsAskedTo) {
  RankEnvironment e = lonely();
  Settings settings;
  settings.launch.join_timeout = std::chrono::seconds(20);
  settings.launch.grace = std::chrono::seconds(4);  // of which it waits for three
  ::testing::internal::CaptureStderr();
  request_stop(SIGTERM);
  EXPECT_THROW(find_local_ranks(e, settings), Stopped);
  clear_stop_request();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "waiting for rank 1\n");
}

// One of two ranks of this host, as people export them.
RankEnvironment by_hand(int rank, int port) {
  RankEnvironment e;
  e.launched = true;
  e.launcher = "the launcher";
  e.global_rank = e.local_rank = rank;
  e.world_size = e.local_world_size = 2;
  e.master_address = "127.0.0.1";
  e.master_port = port;
  return e;
}

TEST(LocalRanks, ARefusalReachesTheOtherRankInSecondsWhicheverIsRefused) {
  const data::TemporaryFolder folder;
  const MeetingOptions options{.out_dir = folder / "run", .timeout = std::chrono::minutes(1)};
  for (const int refused : {0, 1}) {
    const int port = MeetingPoint().port;
    RankEnvironment other = by_hand(1 - refused, port);
    ASSERT_TRUE(are_by_hand(other));
    const auto start = std::chrono::steady_clock::now();
    std::jthread tells([&] { tell_others(by_hand(refused, port), options, UsageError("error: there is no text")); });
    EXPECT_EQ(data::refusal([&] {
                const MeetingFile file(other, options);
                find_local_ranks(other, {});
              }),
              "rank " + std::to_string(refused) + " was refused: there is no text");
    tells.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
}

// All ranks end with the exit code of the one that failed.
TEST(LocalRanks, AFailureBeforeTheMeetingReachesTheOtherRankWithItsExitCode) {
  const data::TemporaryFolder folder;
  const MeetingOptions options{.out_dir = folder / "run", .timeout = std::chrono::minutes(1)};
  const auto heard = [&](const std::exception& why) -> std::pair<int, std::string> {
    const int port = MeetingPoint().port;
    std::jthread tells([&] { tell_others(by_hand(1, port), options, why); });
    RankEnvironment other = by_hand(0, port);
    try {
      const MeetingFile file(other, options);
      find_local_ranks(other, {});
    } catch (const std::exception& error) {
      return {base::exit_code_of(error), error.what()};
    }
    return {0, ""};
  };
  using Heard = std::pair<int, std::string>;
  EXPECT_EQ(heard(Error("no memory is left")), Heard(1, "rank 1 failed: no memory is left"));
  EXPECT_EQ(heard(base::FileError("cannot write a: it is full", "a", ENOSPC)),
            Heard(74, "rank 1 failed: cannot write a: it is full"));
  EXPECT_EQ(heard(base::FileError("cannot open a: there is none", "a", ENOENT)),
            Heard(2, "rank 1 was refused: cannot open a: there is none"));
}

// What ranks 0 and 1 say who meet by hand with these settings, of which rank 1 believes in `world` ranks.
std::array<std::string, 2> meet_by_hand(const Settings& first, const Settings& second, int world = 2) {
  const data::TemporaryFolder folder;
  const MeetingOptions options{.out_dir = folder / "run", .timeout = std::chrono::minutes(1)};
  const int port = MeetingPoint().port;
  std::array<std::string, 2> said;
  const auto meets = [&](int rank, const Settings& settings) {
    RankEnvironment e = by_hand(rank, port);
    if (rank == 1) e.world_size = e.local_world_size = world;
    said[static_cast<size_t>(rank)] = data::refusal([&] {
      const MeetingFile file(e, options);
      find_local_ranks(e, settings);
    });
  };
  {
    const std::jthread other([&] { meets(1, second); });
    meets(0, first);
  }
  return said;
}

TEST(LocalRanks, RanksWithOtherSettingsAreAllRefusedWithTheDifference) {
  Settings first, second;
  second.optimizer.lr = 0.002;
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& said : meet_by_hand(first, second)) {
    EXPECT_THAT(said, HasSubstr("rank 1 ("));
    EXPECT_THAT(said, HasSubstr(") has optimizer.lr 0.002, rank 0 has 0.001; start every machine with the same"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(LocalRanks, RanksOfAnotherWorldAreRefused) {
  for (const std::string& said : meet_by_hand({}, {}, /*world=*/3))
    EXPECT_THAT(said, HasSubstr("has world size 3, rank 0 has 2; "));
}

TEST(LocalRanks, ARefusalThatNobodyHearsLeavesNothing) {
  const data::TemporaryFolder folder;
  const int port = MeetingPoint().port;
  const auto start = std::chrono::steady_clock::now();
  tell_others(by_hand(0, port), {.out_dir = folder / "run"}, UsageError("there is no text"));
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GT(took, std::chrono::seconds(4));  // it waits for the other rank
  EXPECT_LT(took, std::chrono::seconds(7));
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(LocalRanks, RanksOfALauncherAreNotByHand) {
  EXPECT_FALSE(are_by_hand({}));
  RankEnvironment slurm = by_hand(0, 1);
  slurm.job_id = "slurm-1";
  EXPECT_FALSE(are_by_hand(slurm));
  RankEnvironment ours = by_hand(0, 1);
  ours.launcher = "trireme";
  EXPECT_FALSE(are_by_hand(ours));
}

}  // namespace
}  // namespace trireme::launch
