// Ring 3: the suite on processes, and what survivors see when one of them is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "process_ranks.h"

namespace trireme::comm::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct ProcessCase {
  std::string backend;
  int size;
};

class ProcessRing : public ::testing::TestWithParam<ProcessCase> {};

TEST_P(ProcessRing, PassesTheSuite) {
  const auto [backend, size] = GetParam();
  for (const ProcessRank& rank : run_process_ranks({.backend = backend, .size = size})) {
    EXPECT_EQ(rank.exit_code, 0);
    EXPECT_EQ(rank.output, "");  // a warning in the log is a failure too
  }
}

TEST_P(ProcessRing, SurvivorsOfAKilledRankGetAnError) {
  const auto [backend, size] = GetParam();
  const auto ranks = run_process_ranks({.backend = backend, .size = size, .part = "killed"});
  EXPECT_EQ(ranks.back().signal, SIGKILL);
  for (int k = 0; k + 1 < size; ++k) {
    EXPECT_EQ(ranks[k].exit_code, 0) << ranks[k].output;
    EXPECT_THAT(ranks[k].output, AllOf(HasSubstr("operation=all_reduce group=shard global_rank=" + std::to_string(k)),
                                       HasSubstr("[comm] all_reduce #"), HasSubstr("group 'shard'"),
                                       HasSubstr("on rank " + std::to_string(k))));
    const std::string& text = ranks[k].output;
    EXPECT_LT(std::stoi(text.substr(text.find(" ms=") + 4)), 30'000) << text;
  }
  // Whoever noticed first names the one that died.
  std::string all;
  for (const ProcessRank& rank : ranks) all += rank.output;
  EXPECT_THAT(all, HasSubstr("rank " + std::to_string(size - 1)));
}

TEST_P(ProcessRing, SilentRankIsATimeout) {
  const auto [backend, size] = GetParam();
  const auto ranks = run_process_ranks({.backend = backend, .size = size, .part = "silent"});
  std::string all;
  for (int k = 0; k + 1 < size; ++k) {
    EXPECT_EQ(ranks[k].exit_code, 0) << ranks[k].output;
    EXPECT_THAT(ranks[k].output, AllOf(HasSubstr("[comm] all_reduce #1 of group 'shard'")));
    all += ranks[k].output;
  }
  EXPECT_THAT(all, HasSubstr("rank " + std::to_string(size - 1) + " (global rank " + std::to_string(size - 1) + ")"));
}

INSTANTIATE_TEST_SUITE_P(Communicator, ProcessRing,
                         ::testing::Values(ProcessCase{"shm", 2}, ProcessCase{"shm", 4}, ProcessCase{"shm", 8},
                                           ProcessCase{"gloo", 2}, ProcessCase{"gloo", 4}),
                         [](const auto& info) { return info.param.backend + std::to_string(info.param.size); });

TEST(Processes, AutoTakesSharedMemoryOnOneHost) {
  for (const ProcessRank& rank : run_process_ranks({.backend = "auto", .part = "backend"}))
    EXPECT_EQ(rank.output, "backend=shm\n");
}

TEST(Processes, ThreadsAreRefusedForProcesses) {
  for (const ProcessRank& rank : run_process_ranks({.backend = "threads", .part = "backend"}))
    EXPECT_THAT(rank.output, HasSubstr("rank 1 (global rank 1) is not a thread of rank 0's process"));
}

TEST(Processes, LargeBuffersPassBetweenProcesses) {
  for (const char* backend : {"shm", "gloo"})
    for (const ProcessRank& rank : run_process_ranks({.backend = backend, .part = "checks Large"})) {
      EXPECT_EQ(rank.exit_code, 0);
      EXPECT_EQ(rank.output, "");
    }
}

TEST(Processes, NothingIsLeftInSharedMemoryFolder) {
  const auto entries = [] {
    return std::distance(std::filesystem::directory_iterator("/dev/shm"), std::filesystem::directory_iterator());
  };
  const auto before = entries();
  run_process_ranks({.part = "killed"});
  EXPECT_EQ(entries(), before);
}

}  // namespace
}  // namespace trireme::comm::testing
