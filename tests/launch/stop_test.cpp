// Ctrl-C and SIGTERM: once to finish and save, twice to end at once.
#include "trireme/launch/supervise/stop_signal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/launch/job.h"
#include "trireme/base/files.h"
#include "trireme/base/stop_signals.h"

namespace trireme::launch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Stop, SigtermLetsEveryRankSaveAndReturns75) {
  Job job({"--launch", "2", "--", "*:await_stop"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 75);
  EXPECT_EQ(count(job.out() + job.err(), "saved"), 2);
  EXPECT_THAT(job.err(), HasSubstr("stopping: ranks finish the step and save"));
  EXPECT_THAT(job.err(), Not(HasSubstr("job failed")));
}

TEST(Stop, CtrlCDoesTheSame) {
  Job job({"--launch", "2", "--", "*:await_stop"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 75);
  EXPECT_EQ(count(job.out() + job.err(), "saved"), 2);
}

TEST(Stop, SignalsThatComeWhileARankLoadsAreNotLost) {
  Job job({"--launch", "2", "--", "*:await_stop_late"});
  ASSERT_TRUE(job.wait_for("loading", 2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 75);
  EXPECT_EQ(count(job.out() + job.err(), "saved"), 2);
}

TEST(Stop, ASignalThatComesBeforeTheRanksAreStartedStartsNone) {
  Job job({"--launch", "2", "--asked", "--", "*:print:up"});
  EXPECT_EQ(job.wait(), 75);
  EXPECT_EQ(count(job.out() + job.err(), "up\n"), 0);
  EXPECT_THAT(job.err(), HasSubstr("0 of 2 ranks had been started"));
}

// Ranks start in waves, so 40 of them are not all there when the first is.
TEST(Stop, IsHeardWhileRanksAreStarted) {
  Job job({"--launch", "40", "--oversubscribe", "--", "*:print:up", "*:ignore_term", "*:hang"});
  ASSERT_TRUE(job.wait_for("up"));
  const auto asked = std::chrono::steady_clock::now();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 75);
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(5));
  EXPECT_THAT(job.err(), HasSubstr(" of 40 ranks had been started"));
  EXPECT_LT(count(job.out() + job.err(), "ready"), 40);
  EXPECT_EQ(job.processes(), std::vector<pid_t>{});
}

TEST(Stop, RanksThatHaveNotBegunNeedNotAgree) {
  Job job({"--launch", "2", "--tells-begin", "--", "0:begun", "*:ignore_term", "*:hang"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 75);
  EXPECT_THAT(job.err(), HasSubstr("stopped by SIGTERM before the first step, with nothing saved"));
}

// Ranks of other machines may be waiting for these.
TEST(Stop, RanksThatWaitForOtherMachinesAreWaitedForAndItIsSaid) {
  Job job({"--launch", "1", "--machines", "2", "--tells-begin", "--", "*:ignore_term", "*:print:ready", "*:sleep:3000",
           "*:exit:75"});
  ASSERT_TRUE(job.wait_for("ready"));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 75);
  EXPECT_THAT(job.err(),
              HasSubstr("stopping: no step has begun, so there is nothing to save; ranks wait for the others "
                        "at most 29s; a second signal kills them at once"));
}

TEST(Stop, RanksThatHaveBegunAreWaitedFor) {
  Job job({"--launch", "2", "--tells-begin", "--", "*:begun", "*:ignore_term", "*:print:ready", "*:sleep:3500",
           "*:print:saved", "*:exit:75"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 75);
  EXPECT_EQ(count(job.out() + job.err(), "saved"), 2);
}

TEST(Stop, ARankKnowsWhichSignalTheLauncherGot) {
  Job job({"--launch", "2", "--", "*:await_stop_and_name"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 75);
  EXPECT_EQ(count(job.out() + job.err(), "SIGINT from the launcher"), 2);
}

TEST(Stop, AWarningIsPassedOn) {
  Job job({"--launch", "2", "--", "*:await_stop"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGUSR1);
  EXPECT_EQ(job.wait(), 75);
  EXPECT_EQ(count(job.out() + job.err(), "saved"), 2);
}

// It has no handler, as a program that is not ours.
TEST(Stop, AProgramThatTheWarningEndsHasNotFailed) {
  Job job({"--launch", "2", "--restarts", "2", "--", "*:print:ready", "*:sleep:60000"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGUSR1);
  EXPECT_EQ(job.wait(), 128 + SIGUSR1);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("ended by the signal"), Not(HasSubstr("failed")), Not(HasSubstr("restart"))));
}

TEST(Stop, OneRequestThatIsSentTwiceIsOne) {
  Job job({"--launch", "2", "--", "*:ignore_term", "*:print:ready", "*:sleep:400", "*:exit:75"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGTERM);
  ASSERT_TRUE(job.wait_for("stopping: "));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 75);
}

// As timeout -s INT does, which signals its child and then the child's group.
TEST(Stop, OneCtrlCThatIsSentTwiceIsOne) {
  Job job({"--launch", "2", "--", "*:ignore_term", "*:print:ready", "*:sleep:400", "*:exit:75"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGINT);
  usleep(5'000);  // or the kernel would keep one of them
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 75) << job.err();
}

TEST(Stop, ACtrlCRightAfterASigtermIsTheSameRequest) {
  Job job({"--launch", "2", "--", "*:ignore_term", "*:print:ready", "*:sleep:400", "*:exit:75"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGTERM);
  ASSERT_TRUE(job.wait_for("stopping: "));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 75) << job.err();
}

TEST(Stop, ASecondSignalKillsAtOnce) {
  Job job({"--launch", "2", "--", "*:ignore_term", "*:hang"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGUSR1);  // only warns
  ASSERT_TRUE(job.wait_for("stopping: "));
  job.signal(SIGTERM);
  ASSERT_TRUE(job.wait_for("stopping: ", 2));
  usleep(1'100'000);
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_THAT(job.err(), HasSubstr("killed at once after"));
}

TEST(Stop, ASecondCtrlCKillsAtOnce) {
  Job job({"--launch", "2", "--", "*:ignore_term", "*:grandchild", "*:hang"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGINT);
  ASSERT_TRUE(job.wait_for("a second Ctrl-C kills them at once"));
  usleep(150'000);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 128 + SIGINT);
  EXPECT_THAT(job.err(), HasSubstr("killed at once after"));
  EXPECT_EQ(job.processes(), std::vector<pid_t>{});
}

// A second request would end them at once, while they save.
TEST(Stop, RanksThatWereAskedAreNotAskedAgainWhenThoseElsewhereEnd) {
  const base::FileDescriptor elsewhere(eventfd(0, 0));
  Job job({.arguments = {"--launch", "2", "--grace", "300", "--end-fd", "77", "--", "*:tell_requests", "*:hang"},
           .extra_fd = elsewhere.get()});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGTERM);
  ASSERT_TRUE(job.wait_for("asked", 2));
  eventfd_write(elsewhere.get(), 1);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_EQ(count(job.out() + job.err(), "asked"), 2);
}

TEST(Stop, RanksThatDoNotKnowTheSignalEndUnsavedAndItIsSaid) {
  Job job({"--launch", "2", "--", "1:await_stop", "0:hang"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_THAT(job.err(), HasSubstr("rank 0 ended by the signal before saving"));
}

TEST(Stop, OfACommandThatDoesNotTrainNothingIsSaidOfStepsAndSaves) {
  Job job({"--launch", "2", "--saves-not", "--", "1:await_stop", "0:hang"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_THAT(job.err(), HasSubstr("stopping: ranks are asked to end; a second signal kills them at once"));
  EXPECT_THAT(job.err(), HasSubstr("rank 0 ended by the signal\n"));
}

TEST(Stop, AFailureWhileSavingIsAFailure) {
  Job job({"--launch", "2", "--", "0:await_stop", "1:ignore_term", "1:print:ready", "1:sleep:300",
           "1:fail:cannot save: disk full", "1:exit:1"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), HasSubstr("cannot save: disk full"));
}

TEST(Stop, ARankKnowsThatItEndsBecauseAnotherHasFailed) {
  Job job({"--launch", "2", "--quiet", "--", "0:await_stop_and_name", "1:sleep:300", "1:exit:3"});
  EXPECT_EQ(job.wait(), 3);
  EXPECT_THAT(job.out(), HasSubstr("the end of other ranks from the launcher"));
}

TEST(Stop, RanksThatStopByThemselvesAreResumableToo) {
  Job job({"--launch", "2", "--quiet", "--", "*:exit:75"});
  EXPECT_EQ(job.wait(), 75);
  EXPECT_EQ(job.err(), "");
}

TEST(StopSignal, IsRememberedUntilItIsCleared) {
  clear_stop_request();
  install_stop_signal();
  EXPECT_FALSE(stop_requested());
  raise(SIGTERM);
  raise(SIGTERM);  // systemd and Slurm may send it besides the launcher
  EXPECT_TRUE(stop_requested());
  EXPECT_EQ(stop_signal(), SIGTERM);
  clear_stop_request();
  EXPECT_FALSE(stop_requested());
  for (const int number : base::kStopSignals) signal(number, SIG_DFL);
}

TEST(StopSignal, NobodyWaitsForRanksThatHaveEnded) {
  clear_stop_request();
  end_wait_when_stopped(std::chrono::hours(1), "the other ranks");
  request_stop(SIGTERM);
  end_wait_when_stopped(std::chrono::hours(1), "the other ranks");
  clear_stop_request();
  request_stop(kOthersEnded);
  EXPECT_THROW(end_wait_when_stopped(std::chrono::hours(1), "the other ranks"), Stopped);
  clear_stop_request();
}

TEST(StopSignal, AClosedTerminalIsARequestUnlessItIsIgnored) {
  signal(SIGHUP, SIG_DFL);
  clear_stop_request();
  install_stop_signal();
  raise(SIGHUP);
  raise(SIGHUP);  // the terminal and the shell may both send it
  EXPECT_EQ(stop_signal(), SIGHUP);
  clear_stop_request();
  signal(SIGHUP, SIG_IGN);  // as nohup does
  install_stop_signal();
  raise(SIGHUP);
  EXPECT_FALSE(stop_requested());
  for (const int number : base::kStopSignals) signal(number, SIG_DFL);
}

TEST(StopSignal, AWarningIsNoFirstOfTwo) {
  clear_stop_request();
  install_stop_signal();
  raise(SIGUSR1);
  EXPECT_EQ(stop_signal(), SIGUSR1);
  raise(SIGUSR1);
  raise(SIGTERM);
  EXPECT_EQ(stop_signal(), SIGTERM);
  EXPECT_LT(time_since_stop_request().count(), 10);
  EXPECT_STREQ(name_of_stop(stop_signal()), "SIGTERM");
  clear_stop_request();
  request_stop(kNoticeFile);
  request_stop(SIGTERM);
  EXPECT_STREQ(name_of_stop(stop_signal()), "the notice file");
  clear_stop_request();
  for (const int number : base::kStopSignals) signal(number, SIG_DFL);
}

TEST(StopSignal, ASecondSigtermEndsTheProcessUnlessItIsTheSameRequest) {
  EXPECT_EXIT(
      {
        signal(SIGTERM, SIG_DFL);
        clear_stop_request();
        install_stop_signal();
        raise(SIGTERM);
        raise(SIGTERM);  // systemd and Slurm may send it besides the launcher
        usleep(1'050'000);
        raise(SIGTERM);
        _exit(2);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(StopSignal, ASecondCtrlCEndsAWorldOfOne) {
  EXPECT_EXIT(
      {
        signal(SIGINT, SIG_DFL);
        install_stop_signal();
        raise(SIGINT);
        if (!stop_requested()) _exit(1);
        raise(SIGINT);  // timeout -s INT signals its child and then the child's group
        usleep(150'000);
        raise(SIGINT);
        _exit(2);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace trireme::launch::testing
