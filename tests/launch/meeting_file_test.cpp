#include "trireme/launch/machines/meeting_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/launch/supervise/stop_signal.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Meeting : public ::testing::Test {
 protected:
  Meeting() : folder_(fs::temp_directory_path() / ("trireme-meeting-" + std::to_string(getpid()))) {}
  ~Meeting() override { fs::remove_all(folder_); }

  static RankEnvironment rank(int rank, int hosts = 1) {
    RankEnvironment e;
    e.launched = true;
    e.launcher = "srun";
    e.global_rank = rank;
    e.world_size = 2;
    e.local_world_size = 2 / hosts;
    e.job_id = "slurm-1.0/x y";
    return e;
  }

  const fs::path folder_;
};

TEST_F(Meeting, OthersFindTheSocketOfRankZero) {
  for (const int hosts : {1, 2}) {
    RankEnvironment first = rank(0, hosts), second = rank(1, hosts);
    std::jthread waits([&] { MeetingFile file(second, {.out_dir = folder_, .timeout = 10s}); });
    std::this_thread::sleep_for(50ms);
    std::optional<MeetingFile> file(std::in_place, first, MeetingOptions{.out_dir = folder_, .timeout = 10s});
    waits.join();
    EXPECT_GT(first.master_port, 0);
    EXPECT_GE(first.store_fd, 0);
    EXPECT_EQ(second.master_port, first.master_port);
    EXPECT_EQ(second.master_address, first.master_address);
    EXPECT_EQ(first.master_address == "127.0.0.1", hosts == 1) << first.master_address;
    EXPECT_EQ(second.store_fd, -1);
    EXPECT_EQ(first.token.size(), 64U);
    EXPECT_EQ(second.token, first.token);
    EXPECT_EQ(second.meeting_file, folder_ / ".meeting-slurm-1.0_x_y");
    EXPECT_EQ(fs::status(second.meeting_file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    file.reset();
    EXPECT_TRUE(fs::is_empty(folder_));
    close(first.store_fd);
  }
}

TEST_F(Meeting, ARankZeroThatDoesNotComeIsNamed) {
  RankEnvironment second = rank(1);
  try {
    MeetingFile file(second, {.out_dir = folder_, .timeout = 60ms});
    FAIL() << "no file, no meeting";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 has not come"), HasSubstr(".meeting-slurm-1.0_x_y"),
                                    HasSubstr("the same --out_dir")));
  }
}

TEST_F(Meeting, AStopThatIsRequestedEndsTheWaiting) {
  RankEnvironment second = rank(1);
  request_stop(SIGTERM);
  EXPECT_THROW(MeetingFile(second, {.out_dir = folder_, .timeout = 30s, .patience_when_stopped = 50ms}), Stopped);
  clear_stop_request();
}

// Rank 0 would wait for a rank that has left, and end in an error where a stop was asked for.
TEST_F(Meeting, ARankThatIsAskedToStopStillMeetsARankZeroThatComesSoon) {
  RankEnvironment first = rank(0), second = rank(1);
  request_stop(SIGTERM);
  std::jthread waits([&] { EXPECT_NO_THROW(MeetingFile(second, {.out_dir = folder_, .timeout = 30s})); });
  std::this_thread::sleep_for(200ms);
  const MeetingFile file(first, {.out_dir = folder_, .timeout = 30s});
  waits.join();
  clear_stop_request();
  EXPECT_EQ(second.master_port, first.master_port);
  close(first.store_fd);
}

TEST_F(Meeting, AFileOfSomethingElseIsRefused) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / ".meeting-slurm-1.0_x_y") << "somewhere\n";
  RankEnvironment second = rank(1);
  EXPECT_THROW(MeetingFile(second, {.out_dir = folder_, .timeout = 60ms}), Error);
}

TEST_F(Meeting, RanksStartedByHandAreToldOfAnAddressThatNobodyKnows) {
  const auto told = [&](int number) {
    RankEnvironment first = rank(0, 2), second = rank(1, 2);
    for (RankEnvironment* e : {&first, &second}) {
      e->launcher = "the launcher";
      e->job_id = "";
      e->master_address = "nosuchhost.invalid";
      e->local_is_unknown = true;
    }
    ::testing::internal::CaptureStderr();
    const MeetingFile file(first, {.out_dir = folder_, .timeout = 10s});
    const std::string of_first = ::testing::internal::GetCapturedStderr();
    ::testing::internal::CaptureStderr();
    const MeetingFile other(second, {.out_dir = folder_, .timeout = 10s});
    const std::string of_second = ::testing::internal::GetCapturedStderr();
    close(first.store_fd);
    return number == 0 ? of_first : of_second;
  };
  constexpr const char* kWhat =
      "where the ranks meet (MASTER_ADDR): no name service of this machine knows nosuchhost.invalid";
  EXPECT_THAT(told(0), AllOf(HasSubstr(kWhat), HasSubstr("; this rank waits for the others all the same")));
  EXPECT_THAT(told(1), AllOf(HasSubstr(kWhat), HasSubstr("; this rank waits for rank 0 all the same")));
}

TEST_F(Meeting, AnIpv6AddressIsRefused) {
  RankEnvironment second = rank(1, 2);
  second.master_address = "fd00::1";
  EXPECT_THROW(MeetingFile(second, {.out_dir = folder_, .timeout = 60ms}), UsageError);
}

TEST_F(Meeting, AJobWithoutANameIsRefused) {
  RankEnvironment first = rank(0);
  first.job_id = "";
  EXPECT_THROW(MeetingFile(first, {.out_dir = folder_, .timeout = 60ms}), UsageError);
  EXPECT_FALSE(fs::exists(folder_));
}

}  // namespace
}  // namespace trireme::launch
