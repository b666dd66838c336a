#include "trireme/base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "trireme/base/child_process.h"

namespace trireme::base {
namespace {

TEST(Process, AStartIsTheSameEachTimeAndOfAGoneProcessThereIsNone) {
  const auto mine = process_start_ticks(getpid());
  ASSERT_TRUE(mine);
  EXPECT_GT(*mine, 0u);
  EXPECT_EQ(process_start_ticks(getpid()), mine);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(process_start_ticks(child), std::optional<uint64_t>(0));
}

TEST(Process, SignalsDoNotEndTheWaitForAChild) {
  struct sigaction interrupts{}, before{};
  interrupts.sa_handler = [](int) {};
  sigaction(SIGALRM, &interrupts, &before);  // without SA_RESTART
  const pid_t child = fork();
  if (child == 0) {
    usleep(100'000);
    _exit(3);
  }
  const itimerval often{{0, 5'000}, {0, 5'000}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  const int status = wait_for_end(child);
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST(ChildProcess, ItsWholeGroupIsKilledWithoutItsEnd) {
  ChildProcess child({.file = "/bin/sh", .words = {"sh", "-c", "sleep 1000 & echo $!; wait"}, .is_read = true});
  std::string number;
  for (char byte = 0; byte != '\n';)
    if (read(child.output(), &byte, 1) == 1)
      number += byte;
    else
      usleep(1000);
  const pid_t other = std::stoi(number);
  EXPECT_EQ(kill(other, 0), 0);
  kill_child_groups();
  child.end(std::chrono::milliseconds(1000));
  EXPECT_EQ(WTERMSIG(child.status()), SIGKILL);
  for (int i = 0; i < 5000 && process_start_ticks(other).value_or(1) != 0; ++i) usleep(1000);
  EXPECT_EQ(process_start_ticks(other), std::optional<uint64_t>(0));
}

// A rank that has no descriptor left would take its peers for dead.
TEST(Process, WhoCannotLookDoesNotSayThatAProcessIsGone) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const auto mine = process_start_ticks(getpid());
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(mine);
}

TEST(Process, OnlyWhoHasSurelyEndedIsGone) {
  const uint64_t mine = process_start_ticks(getpid()).value();
  EXPECT_FALSE(is_gone(getpid(), mine));
  EXPECT_FALSE(is_gone(getpid(), 0)) << "its start is unknown";
  EXPECT_TRUE(is_gone(getpid(), mine + 1)) << "another process has its id now";
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(is_gone(child, mine));
  EXPECT_TRUE(is_gone(child, 0));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const bool taken_for_gone = is_gone(getpid(), mine);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(taken_for_gone);
}

constexpr int kNoFolder = 99;  // this user may put no other /proc in the place of the system's

// Hides the system's /proc from this process, which is to be one for that alone.
void enter_empty_proc() {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(kNoFolder);
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(kNoFolder);
  if (mount("none", "/proc", "tmpfs", 0, nullptr) != 0) _exit(kNoFolder);
}

// Looks at this process' parent in a /proc with what `make` puts into the parent's folder: 0 where that says nothing, 1
// where it says that the parent is gone, 2 for a start.
template <typename Make>
int look_in_another_proc(Make make) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    enter_empty_proc();
    make("/proc/" + std::to_string(parent));
    const auto start = process_start_ticks(parent);
    _exit(!start ? 0 : *start == 0 ? 1 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void write_stat(const std::string& folder, const std::string& text) {
  mkdir(folder.c_str(), 0700);
  std::ofstream(folder + "/stat") << text;
}

// Only "there is no such process" means that: a peer that is taken for dead ends the job.
TEST(Process, NoOtherFailureMeansThatAProcessIsGone) {
  const std::string end = " 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
  const int start = look_in_another_proc([&](const std::string& folder) { write_stat(folder, "7 (a b) S" + end); });
  if (start == kNoFolder) GTEST_SKIP() << "this user cannot mount another /proc for itself";
  ASSERT_EQ(start, 2);
  EXPECT_EQ(look_in_another_proc([&](const std::string& folder) { write_stat(folder, "7 (a b) Z" + end); }), 1);
  EXPECT_EQ(look_in_another_proc([](const std::string&) {}), 0) << "hidden, or there is no /proc";
  EXPECT_EQ(look_in_another_proc([](const std::string& folder) { write_stat(folder, ""); }), 0) << "no text";
  EXPECT_EQ(look_in_another_proc([](const std::string& folder) { write_stat(folder, "7 (a b) S 1 1"); }), 0)
      << "cut text";
  EXPECT_EQ(look_in_another_proc([](const std::string& folder) {
              mkdir(folder.c_str(), 0700);
              mkdir((folder + "/stat").c_str(), 0700);
            }),
            0)
      << "a read that fails";
  EXPECT_EQ(look_in_another_proc([](const std::string& folder) {
              mkdir(folder.c_str(), 0700);
              std::filesystem::create_symlink("stat", folder + "/stat");
            }),
            0)
      << "an open that fails";
}

TEST(Process, ALimitOnProcessesIsNamed) {
  EXPECT_EQ(why_not_started(EAGAIN), "the limit on processes is reached (ulimit -u, or pids.max of the control group)");
  EXPECT_EQ(why_not_started(ENOMEM), "Cannot allocate memory");
}

TEST(Process, ALimitOnOpenFilesIsNamed) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{24, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  const std::string why = why_no_descriptor(EMFILE);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(why, "this process may have 24 open files (ulimit -n), and needs more; raise that limit");
  EXPECT_EQ(why_no_descriptor(ENOMEM), "Cannot allocate memory");
}

TEST(Process, WhoIsGoneIsGoneAlsoWithoutProc) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  const pid_t looker = fork();
  if (looker == 0) {
    enter_empty_proc();
    _exit(process_start_ticks(child) == std::optional<uint64_t>(0) ? 0 : 1);
  }
  int status = 0;
  waitpid(looker, &status, 0);
  if (WEXITSTATUS(status) == kNoFolder) GTEST_SKIP() << "this user cannot mount another /proc for itself";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace trireme::base
