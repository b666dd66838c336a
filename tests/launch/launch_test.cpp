// What each rank is given (environment, descriptors, cores) and where its output goes.
#include "trireme/launch/supervise/launch.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "tests/launch/job.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/launch/identity/core_share.h"

namespace trireme::launch::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string value_of(const std::string& output, const std::string& name) {
  std::smatch match;
  return std::regex_search(output, match, std::regex("(^|\n)" + name + "=(.*)")) ? match[2].str() : "(not printed)";
}

TEST(Launch, EveryRankLearnsWhoItIs) {
  Job job({"--launch", "3", "--out", "OUT", "--", "*:whoami"});
  ASSERT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "rank 0 of 3, local 0 of 3, store host, socket inherited\n");
  EXPECT_THAT(job.log(0), HasSubstr("rank 0 of 3, local 0 of 3, store host, socket inherited\n"));
  EXPECT_THAT(job.log(1), HasSubstr("rank 1 of 3, local 1 of 3, store client, socket none\n"));
  EXPECT_THAT(job.log(2), HasSubstr("rank 2 of 3, local 2 of 3, store client, socket none\n"));
}

TEST(Launch, RanksShareAPortAndAJobIdThatNoOtherJobHas) {
  const std::vector<std::string> arguments = {
      "--launch",        "2", "--out", "OUT", "--", "*:env:MASTER_ADDR", "*:env:MASTER_PORT", "*:env:TRIREME_JOB_ID",
      "*:env:GROUP_RANK"};
  Job a(arguments), b(arguments);
  ASSERT_EQ(a.wait(), 0) << a.err();
  ASSERT_EQ(b.wait(), 0) << b.err();
  for (const char* name : {"MASTER_PORT", "TRIREME_JOB_ID"}) {
    EXPECT_THAT(value_of(a.log(0), name), MatchesRegex("[0-9a-f]+"));
    EXPECT_EQ(value_of(a.log(0), name), value_of(a.log(1), name));
  }
  EXPECT_NE(value_of(a.log(0), "TRIREME_JOB_ID"), value_of(b.log(0), "TRIREME_JOB_ID"));
  EXPECT_EQ(value_of(a.log(1), "MASTER_ADDR"), "127.0.0.1");
  EXPECT_EQ(value_of(a.log(1), "GROUP_RANK"), "0");
}

TEST(Launch, ThreadsAndHeapSettingsAreSetUnlessTheUserSetThem) {
  const std::vector<std::string> actions = {"0:env:OMP_NUM_THREADS", "0:env:MKL_NUM_THREADS", "0:env:GLIBC_TUNABLES"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.push_back("--");
    arguments.insert(arguments.end(), actions.begin(), actions.end());
    return arguments;
  };
  Job plain(with({"--launch", "2"}));
  Job asked({.arguments = with({"--launch", "2", "--threads", "3"}), .environment = {{"OMP_NUM_THREADS", "7"}}});
  Job set({.arguments = with({"--launch", "2"}),
           .environment = {{"OMP_NUM_THREADS", "7"}, {"GLIBC_TUNABLES", "glibc.malloc.check=0"}}});
  ASSERT_EQ(plain.wait(), 0);
  ASSERT_EQ(asked.wait(), 0);
  ASSERT_EQ(set.wait(), 0);
  EXPECT_EQ(value_of(plain.out(), "OMP_NUM_THREADS"), std::to_string(share_cores(2).threads_per_rank));
  EXPECT_EQ(value_of(plain.out(), "MKL_NUM_THREADS"), std::to_string(share_cores(2).threads_per_rank));
  EXPECT_THAT(value_of(plain.out(), "GLIBC_TUNABLES"), HasSubstr("glibc.malloc.mmap_threshold=1073741824"));
  EXPECT_EQ(value_of(asked.out(), "OMP_NUM_THREADS"), "3");
  EXPECT_EQ(value_of(asked.out(), "MKL_NUM_THREADS"), "3");
  EXPECT_EQ(value_of(set.out(), "OMP_NUM_THREADS"), "7");
  EXPECT_EQ(value_of(set.out(), "MKL_NUM_THREADS"), "(unset)");
  EXPECT_EQ(value_of(set.out(), "GLIBC_TUNABLES"), "glibc.malloc.check=0");
}

TEST(Launch, AnotherLaunchersWordsDoNotReachTheRanks) {
  Job job({.arguments = {"--launch", "1", "--", "*:whoami", "*:env:TORCHELASTIC_RUN_ID"},
           .environment = {{"TORCHELASTIC_RUN_ID", "old"},
                           {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                           {"RANK", "5"},
                           {"WORLD_SIZE", "8"}}});
  ASSERT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "rank 0 of 1, local 0 of 1, store host, socket inherited\nTORCHELASTIC_RUN_ID=(unset)\n");
}

TEST(Launch, NoDescriptorLeaksIntoARank) {
  const int leaked = open("/dev/null", O_RDONLY);
  Job job({.arguments = {"--launch", "2", "--out", "OUT", "--", "*:fds", "*:env:TRIREME_REPORT_FD",
                         "*:env:TRIREME_STORE_FD", "*:env:TRIREME_TOKEN_FD"},
           .extra_fd = leaked});
  close(leaked);
  ASSERT_EQ(job.wait(), 0) << job.err();
  std::set<int> expected_0 = {0,
                              1,
                              2,
                              std::stoi(value_of(job.log(0), "TRIREME_REPORT_FD")),
                              std::stoi(value_of(job.log(0), "TRIREME_STORE_FD")),
                              std::stoi(value_of(job.log(0), "TRIREME_TOKEN_FD"))};
  std::set<int> expected_1 = {0, 1, 2, std::stoi(value_of(job.log(1), "TRIREME_REPORT_FD")),
                              std::stoi(value_of(job.log(1), "TRIREME_TOKEN_FD"))};
  const auto line = [](const std::set<int>& fds) {
    std::string text = "descriptors";
    for (const int fd : fds) text.append(" ").append(std::to_string(fd));
    return text + "\n";
  };
  const auto sorted = [&](const std::string& log) {
    std::smatch match;
    std::regex_search(log, match, std::regex("descriptors([ 0-9]*)\n"));
    std::istringstream numbers(match[1].str());
    return line({std::istream_iterator<int>(numbers), {}});
  };
  EXPECT_EQ(sorted(job.log(0)), line(expected_0));
  EXPECT_EQ(sorted(job.log(1)), line(expected_1));
  EXPECT_EQ(value_of(job.log(1), "TRIREME_STORE_FD"), "(unset)");
}

std::set<int> cpus_in(const std::string& log) {
  std::smatch match;
  std::regex_search(log, match, std::regex("cpus([ 0-9]*)\n"));
  std::istringstream numbers(match[1].str());
  return {std::istream_iterator<int>(numbers), {}};
}

TEST(Launch, RanksArePinnedToCoresOfTheirOwn) {
  if (share_cores(2).num_cores < 2) GTEST_SKIP() << "one core only: nothing to share";
  Job job({"--launch", "2", "--out", "OUT", "--", "*:cpus"});
  ASSERT_EQ(job.wait(), 0);
  const auto first = cpus_in(job.log(0)), second = cpus_in(job.log(1));
  EXPECT_FALSE(first.empty());
  EXPECT_FALSE(second.empty());
  for (const int cpu : first) EXPECT_FALSE(second.contains(cpu)) << "CPU " << cpu << " has two ranks";
}

TEST(Launch, MoreRanksThanCoresAreNotPinnedAndToldSo) {
  const int ranks = share_cores(1).num_cores * 4;
  Job job({"--launch", std::to_string(ranks), "--out", "OUT", "--", "*:cpus", "*:env:OMP_NUM_THREADS"});
  ASSERT_EQ(job.wait(), 0);
  EXPECT_THAT(job.err(), HasSubstr(std::to_string(ranks) + " ranks share"));
  EXPECT_THAT(job.err(), HasSubstr("not pinned"));
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(cpus_in(job.log(rank)).size(), cpus_in(job.log(0)).size());
    EXPECT_EQ(value_of(job.log(rank), "OMP_NUM_THREADS"), "1");
  }
  EXPECT_GE(cpus_in(job.log(0)).size(), static_cast<std::size_t>(share_cores(1).num_cores));
}

TEST(Launch, RankZeroIsShownUnchangedAndTheOthersAreLogged) {
  Job job({"--launch", "2", "--out", "OUT", "--quiet", "--", "*:print:to stdout", "*:warn:to stderr"});
  ASSERT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "to stdout\n");
  EXPECT_EQ(job.err(), "to stderr\n");
  for (const int rank : {0, 1}) {
    EXPECT_THAT(job.log(rank), HasSubstr("to stdout\n"));
    EXPECT_THAT(job.log(rank), HasSubstr("to stderr\n"));
  }
}

TEST(Launch, AShownRankHasItsNumberBeforeEachLine) {
  Job job({"--launch", "3", "--out", "OUT", "--show", "2", "--quiet", "--", "*:print:one\ntwo"});
  ASSERT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "one\ntwo\n");
  EXPECT_EQ(job.err(), "[rank 2] one\n[rank 2] two\n");
}

TEST(Launch, WithoutAFolderForLogsAllRanksAreShown) {
  Job job({"--launch", "2", "--quiet", "--", "*:print:hello"});
  ASSERT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "hello\n");
  EXPECT_EQ(job.err(), "[rank 1] hello\n");
}

TEST(Launch, MuchOutputArrivesWhole) {
  const std::string line(40000, 'x');
  std::vector<std::string> arguments = {"--launch", "2", "--out", "OUT", "--quiet", "--"};
  for (int i = 0; i < 20; ++i) arguments.push_back("*:print:" + line);
  Job job(arguments);
  ASSERT_EQ(job.wait(), 0);
  EXPECT_EQ(count(job.out(), line + "\n"), 20);
  EXPECT_EQ(job.out().size(), 20 * (line.size() + 1));
  EXPECT_EQ(count(job.log(1), line + "\n"), 20);
}

TEST(Launch, ATerminalStaysRankZerosOwn) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const int screen = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
  Job job({.arguments = {"--launch", "2", "--out", "OUT", "--quiet", "--", "*:tty"}, .stdout_fd = screen});
  EXPECT_EQ(job.wait(), 0);
  char shown[256] = {};
  EXPECT_GT(read(terminal, shown, sizeof shown - 1), 0);
  EXPECT_THAT(shown, HasSubstr("a terminal"));
  EXPECT_THAT(job.log(1), HasSubstr("no terminal"));
  close(screen);
  close(terminal);
}

TEST(Launch, AReaderThatLeavesDoesNotEndTheJob) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Job job({.arguments = {"--launch", "2", "--out", "OUT", "--quiet", "--", "0:sleep:100", "0:print:unread",
                         "0:sleep:20", "0:print:to the end"},
           .stdout_fd = ends[1]});
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(job.wait(), 2) << job.err();  // as of one process, which the launcher does not start ranks for
  EXPECT_THAT(job.err(), HasSubstr("cannot write standard output: what read it has gone"));
  EXPECT_THAT(job.log(0), HasSubstr("to the end"));
}

TEST(Launch, WhatRanksPrintIsNotLostInSilence) {
  const base::FileDescriptor full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  if (full.get() < 0) GTEST_SKIP() << "no /dev/full on this machine";
  Job job({.arguments = {"--launch", "2", "--", "0:print:a result", "*:sleep:50"}, .stdout_fd = full.get()});
  EXPECT_EQ(job.wait(), 2);  // launch_rank's code for what is refused; trireme ends with that of a full disk, 74
  EXPECT_THAT(job.err(), HasSubstr("cannot write standard output: the disk is full"));
  Job failed({.arguments = {"--launch", "2", "--", "0:print:a result", "0:exit:3"}, .stdout_fd = full.get()});
  EXPECT_EQ(failed.wait(), 3);
}

TEST(Launch, ASecondRunKeepsTheFirstRunsLog) {
  const auto folder = std::filesystem::temp_directory_path() / ("trireme-launch-twice-" + std::to_string(getpid()));
  for (const char* text : {"0:print:first", "0:print:second"}) {
    Job job({"--launch", "1", "--out", folder.string(), "--", text});
    ASSERT_EQ(job.wait(), 0);
  }
  std::ifstream in(folder / "logs" / "rank0.log");
  std::ostringstream text;
  text << in.rdbuf();
  std::filesystem::remove_all(folder);
  EXPECT_THAT(text.str(), HasSubstr("first\n"));
  EXPECT_THAT(text.str(), HasSubstr("second\n"));
  EXPECT_EQ(count(text.str(), "--- job "), 2);
}

TEST(Launch, ALinkLeadsToTheLogOfRank0AndReplacesNoFile) {
  const auto folder = std::filesystem::temp_directory_path() / ("trireme-launch-link-" + std::to_string(getpid()));
  for (const char* text : {"0:print:first", "0:print:second"}) {
    Job job({"--launch", "2", "--out", folder.string(), "--link", "train.log", "--", text});
    ASSERT_EQ(job.wait(), 0) << job.err();
  }
  EXPECT_EQ(std::filesystem::read_symlink(folder / "train.log"), "logs/rank0.log");
  std::ifstream in(folder / "train.log");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(text, HasSubstr("first\n"));
  EXPECT_THAT(text, HasSubstr("second\n"));
  std::filesystem::remove(folder / "train.log");
  std::ofstream(folder / "train.log") << "mine";
  Job job({"--launch", "1", "--out", folder.string(), "--link", "train.log", "--", "0:print:third"});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.err(), HasSubstr("launch.log_link cannot replace " + (folder / "train.log").string()));
  EXPECT_THAT(base::read_file(folder / "train.log"), "mine");
  std::filesystem::remove_all(folder);
}

TEST(Launch, WhatCannotBeIsRefusedBeforeAnyProcessStarts) {
  EXPECT_THROW(launch_ranks({.num_ranks = 0}), UsageError);
  EXPECT_THROW(launch_ranks({.num_ranks = 2, .log_ranks = {2}}), UsageError);
  Job missing({"--launch", "2", "--exe", "/no/such/program", "--", "x"});
  EXPECT_EQ(missing.wait(), 2);
  EXPECT_EQ(missing.err(), "error: cannot run /no/such/program: No such file or directory\n");
  Job no_folder({"--launch", "2", "--out", "/dev/null/x", "--", "x"});
  EXPECT_EQ(no_folder.wait(), 2);
  EXPECT_THAT(no_folder.err(),
              HasSubstr("cannot make the folder /dev/null/x: Not a directory; choose another --out_dir"));
}

TEST(Launch, AFileThatIsNoProgramIsNamed) {
  const auto file = std::filesystem::temp_directory_path() / ("trireme-no-program-" + std::to_string(getpid()));
  std::ofstream(file) << "no program";
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  Job job({"--launch", "2", "--out", "OUT", "--exe", file.string(), "--", "x"});
  EXPECT_NE(job.wait(), 0);
  std::filesystem::remove(file);
  EXPECT_THAT(job.err(), HasSubstr("cannot run " + file.string() + ": Exec format error"));
  EXPECT_EQ(count(job.err(), "job failed"), 1);
}

}  // namespace
}  // namespace trireme::launch::testing
