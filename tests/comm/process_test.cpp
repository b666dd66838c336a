// Ring 3: the suite on processes, and what survivors see when one of them is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

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
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path());
    return names;
  };
  const auto before = entries();
  run_process_ranks({.part = "killed"});
  // Other programs of this machine may have made some; theirs go when they end.
  std::set<std::string> left;
  std::ranges::set_difference(entries(), before, std::inserter(left, left.end()));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!left.empty() && std::chrono::steady_clock::now() < deadline) {
    std::erase_if(left, [](const std::string& name) { return !std::filesystem::exists(name); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_THAT(left, ::testing::IsEmpty());
}

}  // namespace
}  // namespace trireme::comm::testing
