// No process of a job outlives its launcher, however the launcher ends.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/launch/job.h"
#include "trireme/base/files.h"
#include "trireme/launch/supervise/processes.h"

namespace trireme::launch::testing {
namespace {

using namespace std::chrono_literals;

// The launcher, its guardian, and for each rank the rank and its grandchild.
bool all_running(const Job& job, std::size_t num_ranks) {
  return Job::eventually([&] { return job.processes().size() == 2 + 2 * num_ranks; });
}

TEST(Orphans, KillingTheLauncherLeavesNoRankAndNoGrandchild) {
  Job job({"--launch", "2", "--", "*:ignore_term", "*:grandchild", "*:hang"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  ASSERT_TRUE(all_running(job, 2)) << job.processes().size();
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(Job::eventually([&] { return job.processes().empty(); }, 5s)) << job.processes().size();
}

TEST(Orphans, WhoCannotLookDoesNotSayThatNobodyRuns) {
  std::vector<ProcessEntry> table(kMaxProcesses);
  EXPECT_GT(list_processes(table).value_or(0), 0u);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const auto count = list_processes(table);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(count);
}

TEST(Orphans, ACrashOfTheLauncherLeavesNothingEither) {
  Job job({"--launch", "2", "--", "*:ignore_term", "*:grandchild", "*:hang"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  ASSERT_TRUE(all_running(job, 2));
  job.signal(SIGABRT);
  EXPECT_EQ(job.wait(), 128 + SIGABRT);
  EXPECT_TRUE(Job::eventually([&] { return job.processes().empty(); }, 5s)) << job.processes().size();
}

TEST(Orphans, AKilledGuardianIsReplacedAndTheJobGoesOn) {
  Job job({"--launch", "2", "--", "*:grandchild", "*:await_stop"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  const pid_t first = job.await_guardian();
  ASSERT_GT(first, 1);
  send_signal(first, SIGKILL);
  ASSERT_GT(job.await_guardian(first), 1);
  job.signal(SIGKILL);  // the new one does its work as well
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(Job::eventually([&] { return job.processes().empty(); }, 5s)) << job.processes().size();
}

TEST(Orphans, AKilledGuardianDoesNotChangeTheResult) {
  Job job({"--launch", "2", "--", "*:await_stop"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  const pid_t guardian = job.await_guardian();
  ASSERT_GT(guardian, 1);
  send_signal(guardian, SIGKILL);
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 75);
  EXPECT_EQ(job.processes(), std::vector<pid_t>{});
}

TEST(Orphans, AGuardianThatIsKilledAgainAndAgainIsGivenUp) {
  Job job({"--launch", "2", "--", "*:await_stop"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  pid_t guardian = 0;
  for (int kills = 0; kills < 11; ++kills) {
    guardian = job.await_guardian(guardian);
    ASSERT_GT(guardian, 1);
    send_signal(guardian, SIGKILL);
  }
  EXPECT_TRUE(Job::eventually([&] { return kill(guardian, 0) != 0; })) << "it is reaped";
  const auto ticks = [&] {  // of processor time
    std::istringstream stat(base::read_file(fmt::format("/proc/{}/stat", job.pid())));
    long user = 0, system = 0;
    std::string word;
    for (int i = 1; i <= 13; ++i) stat >> word;
    stat >> user >> system;
    return user + system;
  };
  const long before = ticks();
  usleep(500'000);
  EXPECT_LT(ticks() - before, 20) << "the launcher waits and does not look again and again";
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 75);
}

TEST(Orphans, WithoutItsGuardianTheRanksStillDieWithTheLauncher) {
  Job job({"--launch", "2", "--", "*:ignore_term", "*:hang"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  const pid_t guardian = job.await_guardian();
  ASSERT_GT(guardian, 1);
  job.signal(SIGSTOP);  // it cannot start another one
  send_signal(guardian, SIGKILL);
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(Job::eventually([&] { return job.processes().empty(); }, 5s)) << job.processes().size();
}

TEST(Orphans, WhatRanksLeaveRunningEndsWithASuccessfulJobToo) {
  Job job({"--launch", "2", "--", "*:grandchild", "*:exit:0"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.processes(), std::vector<pid_t>{});
}

TEST(Processes, TheMarkerMustBeAWholeVariable) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char program[] = "sleep", time[] = "30", before[] = "XMARK=12", longer[] = "MARK=123", exact[] = "KRAM=12";
    char* arguments[] = {program, time, nullptr};
    char* environment[] = {before, longer, exact, nullptr};
    execve("/bin/sleep", arguments, environment);
    _exit(1);
  }
  EXPECT_TRUE(Job::eventually([&] { return carries_marker(child, "KRAM=12"); }));
  EXPECT_FALSE(carries_marker(child, "MARK=12"));
  EXPECT_TRUE(carries_marker(child, "MARK=123"));
  EXPECT_FALSE(carries_marker(child, "RAM=12"));
  send_signal(child, SIGKILL);
}

TEST(Processes, DescendantsOfTheSelectedAreSelected) {
  ProcessEntry table[] = {{.pid = 2, .parent = 9},
                          {.pid = 5, .parent = 2},
                          {.pid = 7, .parent = 1},
                          {.pid = 8, .parent = 7},
                          {.pid = 9, .parent = 1, .selected = true}};
  select_descendants(table);
  EXPECT_TRUE(table[0].selected);
  EXPECT_TRUE(table[1].selected);
  EXPECT_FALSE(table[2].selected);
  EXPECT_FALSE(table[3].selected);
}

// It would be tried again for ever.
TEST(Orphans, OneThatTheLauncherMayNotEndIsNamedAndLeft) {
  if (geteuid() != 0) GTEST_SKIP() << "another user's process wants root";
  Job job({"--launch", "1", "--no-cap-kill", "--", "0:grandchild_of_nobody"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  const std::string out = job.out(), name = "nobody's ";
  ASSERT_THAT(out, ::testing::HasSubstr(name));
  const std::string pid = out.substr(out.find(name) + name.size(), out.find('\n') - out.find(name) - name.size());
  EXPECT_THAT(job.err(), ::testing::HasSubstr("process " + pid +
                                              ", which a rank has left behind, still runs: this user may not end it"));
}

}  // namespace
}  // namespace trireme::launch::testing
