// The first failure is the headline, whatever the order in which ranks end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fstream>

#include "tests/launch/job.h"

namespace trireme::launch::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Failure, AKilledRankIsTheHeadlineWithStepLastLineAndLog) {
  Job job({"--launch", "4", "--out", "OUT", "--quiet", "--hint", "continue with --resume", "--", "2:status:step 811",
           "2:status:step 812", "2:print:step 812 loss 2.113", "2:sleep:100", "2:kill:9", "*:hang"});
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_THAT(job.err(), ContainsRegex("^job failed after [0-9.]+s at step 812: rank 2 \\(pid [0-9]+\\) was killed by "
                                       "signal 9 \\(SIGKILL\\)\n"));
  EXPECT_THAT(job.err(),
              HasSubstr("  last line: \"step 812 loss 2.113\"; log " + job.out_dir().string() + "/logs/rank2.log\n"));
  EXPECT_THAT(job.err(), ContainsRegex("\n  it had at most [0-9.]+ [KM]iB of memory\n"));
  EXPECT_THAT(job.err(), HasSubstr("  ranks 0, 1, 3 then stopped because rank 2 was gone\n"));
  EXPECT_THAT(job.err(), HasSubstr("  continue with --resume\n"));
  EXPECT_EQ(job.processes(), std::vector<pid_t>{});
}

TEST(Failure, AConsequenceThatExitsFirstIsNotTheHeadline) {
  Job job({"--launch", "3", "--out", "OUT", "--quiet", "--", "0:consequence:all_reduce: rank 1 is gone",
           "2:consequence:all_reduce: rank 1 is gone", "0:mark:zero", "2:mark:two", "0:exit:1", "2:exit:1",
           "1:await:zero", "1:await:two", "1:sleep:50", "1:fail:loss is not a number", "1:exit:4"});
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(job.err(), ContainsRegex("^job failed after .*: rank 1 \\(pid [0-9]+\\): loss is not a number\n"
                                       "  it then exited with code 4\n"));
  EXPECT_THAT(job.err(), HasSubstr("  ranks 0, 2 then stopped because rank 1 was gone\n"));
  EXPECT_THAT(job.err(), Not(HasSubstr("is gone")));
}

TEST(Failure, OfTwoReasonsTheEarlierReportedWinsThoughItsRankExitsLater) {
  Job job({"--launch", "2", "--out", "OUT", "--quiet", "--", "*:ignore_term", "1:mark:armed", "0:await:armed",
           "0:fail:first reason", "0:mark:first", "1:await:first", "1:fail:second reason", "1:mark:second", "1:exit:1",
           "0:await:second", "0:sleep:50", "0:exit:1"});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), ContainsRegex("^job failed after .*: rank 0 .*: first reason\n"));
  EXPECT_THAT(job.err(), ContainsRegex("rank 1 \\(pid [0-9]+\\) failed too: it .*: second reason\n"));
}

TEST(Failure, ARankThatSaidWhyItEndsMayTakeItsTimeAndKeepsItsExitCode) {
  Job job(
      {"--launch", "2", "--out", "OUT", "--quiet", "--", "1:fail:out of luck", "1:sleep:400", "1:exit:4", "0:hang"});
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(job.err(), HasSubstr("  it then exited with code 4\n"));
}

TEST(Failure, ARankThatWasOnlyToldToStopIsNeverTheHeadline) {
  // Rank 0 is killed by the launcher's SIGTERM, and rank 2 exits with an error of its own some time after the failure.
  Job job({"--launch", "3", "--out", "OUT", "--quiet", "--", "2:ignore_term", "2:mark:armed", "1:await:armed",
           "1:mark:dying", "1:abort", "2:await:dying", "2:sleep:300", "2:exit:9", "0:hang"});
  EXPECT_EQ(job.wait(), 128 + SIGABRT);
  EXPECT_THAT(job.err(),
              ContainsRegex("^job failed after .*: rank 1 \\(pid [0-9]+\\) was killed by signal 6 \\(SIGABRT"));
  EXPECT_THAT(job.err(), HasSubstr("  rank 0 then stopped because rank 1 was gone\n"));
}

TEST(Failure, WhoIsWaitedForWithoutARecorderIsLookedAtAllTheSame) {
  Job job({"--launch", "3", "--out", "OUT", "--quiet", "--grace", "200", "--", "1:ignore_term", "1:mark:armed",
           "0:await:armed", "0:timeout:connect: rank 1 has not joined", "0:sleep:1000", "0:exit:1", "*:hang"});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), ContainsRegex("^job failed after .*: rank 0 .*: connect: rank 1 has not joined\n"));
  EXPECT_THAT(job.err(), ContainsRegex("\n  rank 1 \\(pid [0-9]+\\) sleeps"));
  EXPECT_THAT(job.err(), Not(ContainsRegex("\n  rank 0 \\(pid [0-9]+\\) sleeps")));
}

TEST(Failure, ATimeoutThatARankHasToldOnTheScreenIsToldOnce) {
  const std::string message = "connect: rank 1 has not come";
  Job job({"--launch", "2", "--out", "OUT", "--quiet", "--", "0:warn:error: " + message, "0:timeout:" + message,
           "0:exit:1", "1:hang"});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), ContainsRegex("^error: connect: rank 1 has not come\njob failed after .*: rank 0 \\(pid "
                                       "[0-9]+\\) gave up, as it says above; it then exited with code 1\n"));
}

TEST(Failure, AReasonThatARankHasToldOnTheScreenIsToldOnce) {
  const std::string message = "step 3: the loss is nan\n  of rows 1 and 2";
  Job job({"--launch", "2", "--out", "OUT", "--quiet", "--", "0:warn:rank 0: error: " + message, "0:fail:" + message,
           "0:exit:1", "1:hang"});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), ContainsRegex("^rank 0: error: step 3: the loss is nan\n  of rows 1 and 2\njob failed after "
                                       ".*: rank 0 \\(pid [0-9]+\\) failed, as it says above; it then exited with code "
                                       "1\n"));
  EXPECT_EQ(job.err().find("nan"), job.err().rfind("nan"));
}

TEST(Failure, OnlyConsequencesAreStillAFailure) {
  Job job({"--launch", "2", "--out", "OUT", "--quiet", "--", "0:exit:0", "1:consequence:broadcast: rank 0 is gone",
           "1:exit:1"});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), ContainsRegex("rank 1 \\(pid [0-9]+\\): broadcast: rank 0 is gone\n"));
  EXPECT_THAT(job.err(), HasSubstr("  rank 0 had ended before, normally\n"));
}

TEST(Failure, AnExitCodeWithoutAWordIsReportedWithTheLastLineOfStderr) {
  Job job({"--launch", "2", "--out", "OUT", "--quiet", "--", "0:print:fine", "0:warn:\x1b[31mout of luck\x1b[0m",
           "0:exit:3", "1:hang"});
  EXPECT_EQ(job.wait(), 3);
  EXPECT_THAT(job.err(), ContainsRegex("rank 0 \\(pid [0-9]+\\) exited with code 3\n"));
  EXPECT_THAT(job.err(), HasSubstr("last line: \"out of luck\""));
}

TEST(Failure, ARankThatIgnoresSigtermIsKilledAfterTheGracePeriod) {
  Job job({"--launch", "2", "--out", "OUT", "--quiet", "--grace", "200", "--", "1:ignore_term", "1:mark:armed",
           "1:hang", "0:await:armed", "0:exit:1"});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), HasSubstr("  rank 1 did not stop within 0.2s and was killed\n"));
  EXPECT_EQ(job.processes(), std::vector<pid_t>{});
}

TEST(Failure, ARefusedSettingIsPrintedOnceWithoutNoise) {
  const std::string message = "error: unknown setting train.learnig_rate";
  Job everyone(
      {"--launch", "3", "--out", "OUT", "--quiet", "--", "*:warn:" + message, "*:fail:" + message, "*:exit:2"});
  EXPECT_EQ(everyone.wait(), 2);
  EXPECT_EQ(everyone.err(), message + "\n");

  Job one_hidden({"--launch", "3", "--out", "OUT", "--quiet", "--", "2:warn:" + message, "2:fail:" + message,
                  "2:exit:2", "*:hang"});
  EXPECT_EQ(one_hidden.wait(), 2);
  EXPECT_EQ(one_hidden.err(), message + "\n");
}

TEST(Failure, ARefusalThatRanksLeaveToTheLauncherIsPrintedOnceAndKeptInEachLog) {
  const std::string sentence = "train.max_steps must be at least 1, not -1";
  // Without a folder for logs, all ranks are shown.
  Job shown({"--launch", "3", "--quiet", "--", "*:refuse:" + sentence});
  EXPECT_EQ(shown.wait(), 2);
  EXPECT_EQ(shown.err(), "error: " + sentence + "\n");

  Job kept({"--launch", "3", "--out", "OUT", "--quiet", "--", "1:refuse:error: " + sentence, "*:hang"});
  EXPECT_EQ(kept.wait(), 2);
  EXPECT_EQ(kept.err(), "error: " + sentence + "\n");
  EXPECT_THAT(kept.log(1), EndsWith("\nerror: " + sentence + "\n"));

  Job unlike({"--launch", "3", "--quiet", "--", "*:ignore_term", "0:mark:first", "2:mark:last", "1:await:first",
              "1:await:last", "1:refuse:there is no b.txt", "*:refuse:there is no a.txt"});
  EXPECT_EQ(unlike.wait(), 2);
  EXPECT_EQ(unlike.err(), "ranks 0, 2: error: there is no a.txt\nrank 1: error: there is no b.txt\n");
}

TEST(Failure, GarbageInTheEnvironmentIsAUsageErrorOfTheRank) {
  Job job({.arguments = {"0:print:never"}, .environment = {{"RANK", "one"}, {"WORLD_SIZE", "2"}}});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.err(), StartsWith("error: environment variable "));
  EXPECT_THAT(job.err(), HasSubstr("RANK"));
  EXPECT_EQ(job.out(), "");
}

TEST(Failure, AFullDiskForTheLogsIsSaidOnceAndDoesNotEndTheJob) {
  const auto folder = std::filesystem::temp_directory_path() / ("trireme-launch-full-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "logs");
  // As /dev/full is; a link to it is refused.
  if (mknod((folder / "logs" / "rank1.log").c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0)
    GTEST_SKIP() << "no right to make a device";
  Job job({"--launch", "2", "--out", folder.string(), "--quiet", "--", "1:print:a", "1:sleep:20", "1:print:b"});
  EXPECT_EQ(job.wait(), 0);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(count(job.err(), "takes no more (No space left on device)"), 1) << job.err();
}

// The memory limit is set on a control group of its own, which takes root and a writable hierarchy.
TEST(Failure, TheOutOfMemoryKillerIsNamed) {
#ifdef TRIREME_SANITIZED
  GTEST_SKIP() << "the launcher itself needs more than the limit";
#endif
  namespace fs = std::filesystem;
  const std::string name = "trireme-test-" + std::to_string(getpid());
  const fs::path v1 = fs::path("/sys/fs/cgroup/memory") / name;
  const bool is_v1 = fs::exists("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  const fs::path group = is_v1 ? v1 : fs::path("/sys/fs/cgroup") / name;
  std::error_code error;
  if (!fs::create_directory(group, error)) GTEST_SKIP() << "no right to make a control group: " << error.message();
  std::ofstream(group / (is_v1 ? "memory.limit_in_bytes" : "memory.max")) << (160 << 20) << std::flush;
  Job job({.arguments = {"--launch", "2", "--out", "OUT", "--quiet", "--", "1:allocate:200", "*:hang"},
           .cgroup_procs = (group / "cgroup.procs").string()});
  const int code = job.wait();
  const std::string text = job.err();
  Job::eventually([&] { return fs::remove(group, error) || !fs::exists(group); }, std::chrono::seconds(2));
  EXPECT_EQ(code, 128 + SIGKILL);
  EXPECT_THAT(text, HasSubstr("rank 1"));
  EXPECT_THAT(text, HasSubstr("the kernel's out-of-memory killer ended it at"));
}

}  // namespace
}  // namespace trireme::launch::testing
