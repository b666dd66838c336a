// Processes that SIGKILL does not end, because they wait in the kernel: the launcher names them and goes. And ids that
// are used again: the guardian ends nobody who has the id of a rank that ended long ago.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/launch/dead_files.h"
#include "tests/launch/job.h"
#include "trireme/launch/hang/process_look.h"

namespace trireme::launch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

pid_t number_behind(const Job& job, const std::string& word) {
  const std::string out = job.out();
  const auto at = out.find(word + " ");
  return at == std::string::npos ? 0 : std::atoi(out.c_str() + at + word.size() + 1);
}

bool comes_to_wait(pid_t pid) {
  return Job::eventually([&] { return waits_in_kernel(pid); });
}

TEST(Stuck, AnOrphanThatHangsInTheKernelIsNamedAndLeft) {
  const DeadFiles files;
  if (!files.why_not().empty()) GTEST_SKIP() << files.why_not();
  Job job({"--launch", "1", "--", "0:grandchild_look:" + files.file(), "0:await:hangs", "0:exit:0"});
  ASSERT_TRUE(job.wait_for("grandchild "));
  const pid_t orphan = number_behind(job, "grandchild");
  ASSERT_TRUE(comes_to_wait(orphan));
  job.make("hangs");
  EXPECT_EQ(job.wait(), 0) << job.err();
  const std::string sentence = "process " + std::to_string(orphan) +
                               ", which a rank has left behind, still runs: it was killed and waits for a disk or a "
                               "network file system";
  EXPECT_EQ(count(job.err(), sentence), 1) << job.err();
  EXPECT_TRUE(waits_in_kernel(orphan));  // or it was another thing that was shown
}

TEST(Stuck, ARankThatHangsInTheKernelIsNamedOnceAndLeft) {
  const DeadFiles files;
  if (!files.why_not().empty()) GTEST_SKIP() << files.why_not();
  Job job({"--launch", "1", "--", "0:pid", "0:look:" + files.file()});
  ASSERT_TRUE(job.wait_for("pid "));
  const pid_t rank = number_behind(job, "pid");
  ASSERT_TRUE(comes_to_wait(rank));
  job.signal(SIGINT);
  ASSERT_TRUE(job.wait_for("stopping"));
  usleep(150'000);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(30s), 128 + SIGINT) << job.err();
  EXPECT_THAT(job.err(), AllOf(HasSubstr("rank 0 (pid " + std::to_string(rank) + ") was killed 1"),
                               HasSubstr("s ago and has not ended; the launcher no longer waits for it"),
                               Not(HasSubstr("which a rank has left"))));  // nor is it waited for a second time
}

// The others' time-out is what makes the launcher look; it must not wait for the one that they waited for.
TEST(Stuck, WhatARankDoesThatHangsInTheKernelIsTold) {
  const DeadFiles files;
  if (!files.why_not().empty()) GTEST_SKIP() << files.why_not();
  Job job({"--launch", "2", "--grace", "100", "--", "0:pid", "0:look:" + files.file(), "1:await:hangs",
           "1:timeout:rank 0 did not come", "1:exit:1"});
  ASSERT_TRUE(job.wait_for("pid "));
  ASSERT_TRUE(comes_to_wait(number_behind(job, "pid")));
  job.make("hangs");
  EXPECT_EQ(job.wait(30s), 1) << job.err();
  EXPECT_THAT(job.err(), HasSubstr(") waits for a disk or a network file system"));
}

TEST(Stuck, AStackIsNotWaitedFor) {
  const DeadFiles files;
  if (!files.why_not().empty()) GTEST_SKIP() << files.why_not();
  const pid_t child = fork();
  if (child == 0) {
    close_range(3, ~0u, 0);  // the file system ends with the test
    signal(SIGALRM, [](int) {});
    ualarm(20'000, 0);
    access(files.file().c_str(), F_OK);
    _exit(0);
  }
  ASSERT_TRUE(comes_to_wait(child));
  EXPECT_EQ(stack_of(child, 8), std::vector<std::string>{});
  send_signal(child, SIGKILL);
}

// Its user's home directory is on a server that does not answer, for instance.
TEST(Stuck, AnSshThatHangsInTheKernelIsNamedAndLeft) {
  const DeadFiles files;
  if (!files.why_not().empty()) GTEST_SKIP() << files.why_not();
  const std::filesystem::path ssh = std::filesystem::temp_directory_path() / ("ssh-" + std::to_string(getpid()));
  std::ofstream(ssh) << "#!/bin/sh\nexec " LAUNCH_RANK " '*:pid' '*:look:" << files.file() << "'\n";
  chmod(ssh.c_str(), 0700);
  Job job({"--by-ssh", ssh});
  ASSERT_TRUE(job.wait_for("pid "));
  const pid_t pid = number_behind(job, "pid");
  ASSERT_TRUE(comes_to_wait(pid));
  job.signal(SIGINT);
  ASSERT_TRUE(job.wait_for("stopping"));
  usleep(150'000);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(30s), 128 + SIGKILL) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("ssh (pid " + std::to_string(pid) +
                                   ") was killed 10 s ago and has not ended; it is no longer waited for"));
  std::filesystem::remove(ssh);
}

// Starts a process of a wanted id, which waits in a process group of the same id.
long start_stranger(pid_t wanted) {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  arguments.set_tid = reinterpret_cast<std::uint64_t>(&wanted);
  arguments.set_tid_size = 1;
  const long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid != 0) return pid;
  setpgid(0, 0);
  for (;;) pause();
}

TEST(Guardian, EndsNobodyWhoHasTheIdOfARankThatEndedLongAgo) {
  Job job({"--launch", "2", "--", "0:pid", "0:exit:0", "1:ignore_term", "1:hang"});
  ASSERT_TRUE(job.wait_for("ready"));
  ASSERT_TRUE(job.wait_for("pid "));
  const pid_t rank = number_behind(job, "pid");
  ASSERT_GT(rank, 1);
  ASSERT_TRUE(Job::eventually([&] { return kill(rank, 0) != 0; }));
  usleep(100'000);  // the launcher takes its end and tells the guardian at once
  const long stranger = start_stranger(rank);
  if (stranger < 0) GTEST_SKIP() << "no process can be started under a wanted id: " << std::strerror(errno);
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(Job::eventually([&] { return job.processes().empty(); }, 5s));  // the guardian has done its work
  EXPECT_EQ(waitpid(rank, nullptr, WNOHANG), 0) << "the stranger was ended";
  send_signal(rank, SIGKILL);
  waitpid(rank, nullptr, 0);
}

}  // namespace
}  // namespace trireme::launch::testing
