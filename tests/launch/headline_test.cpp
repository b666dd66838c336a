#include "trireme/launch/supervise/headline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "trireme/base/error.h"
#include "trireme/launch/supervise/worker.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

using Time = std::chrono::steady_clock::time_point;

RankOutcome exited(int rank, int code, std::chrono::milliseconds at) {
  return {.global_rank = rank, .pid = 4709 + rank, .wait_status = code << 8, .failed_at = Time(at)};
}

RankOutcome killed(int rank, int signal, std::chrono::milliseconds at) {
  return {.global_rank = rank, .pid = 4709 + rank, .wait_status = signal, .failed_at = Time(at)};
}

TEST(Headline, TellsTheWholeStory) {
  std::vector<RankOutcome> outcomes = {exited(0, 1, 1010ms), exited(1, 1, 1010ms), killed(2, SIGKILL, 1000ms),
                                       killed(3, SIGTERM, 1100ms)};
  for (const int rank : {0, 1}) {
    outcomes[rank].reported = "reduce_scatter in group shard: rank 2 is gone";
    outcomes[rank].consequence = true;
  }
  outcomes[3].told_to_stop = true;
  outcomes[2].status = "step 812";
  outcomes[2].last_line = "step 812 loss 2.113";
  outcomes[2].log_path = "out/run/logs/rank2.log";
  outcomes[2].kernel_note = "the kernel's out-of-memory killer ended it at 61.9 GiB (limit 62 GiB)";
  const auto* first = first_failure(outcomes);
  ASSERT_EQ(first, &outcomes[2]);
  EXPECT_EQ(describe_failure(*first, outcomes, 724s, 30s),
            "job failed after 12m04s at step 812: rank 2 (pid 4711) was killed by signal 9 (SIGKILL)\n"
            "  the kernel's out-of-memory killer ended it at 61.9 GiB (limit 62 GiB)\n"
            "  last line: \"step 812 loss 2.113\"; log out/run/logs/rank2.log\n"
            "  ranks 0, 1, 3 then stopped because rank 2 was gone\n");
}

TEST(Headline, ASimultaneousKillExplainsAnUnexplainedExit) {
  const std::vector<RankOutcome> close = {exited(0, 1, 1000ms), killed(1, SIGSEGV, 1100ms)};
  EXPECT_EQ(first_failure(close), &close[1]);
  const std::vector<RankOutcome> far = {exited(0, 1, 1000ms), killed(1, SIGSEGV, 2000ms)};
  EXPECT_EQ(first_failure(far), &far[0]);
  std::vector<RankOutcome> explained = close;
  explained[0].reported = "no such file";
  EXPECT_EQ(first_failure(explained), &explained[0]);
}

TEST(Headline, NoFailureIsNoHeadline) {
  std::vector<RankOutcome> outcomes = {exited(0, 0, 0ms), exited(1, 75, 0ms), killed(2, SIGTERM, 0ms)};
  outcomes[2].told_to_stop = true;
  EXPECT_EQ(first_failure(outcomes), nullptr);
  outcomes[2].told_to_stop = false;
  EXPECT_EQ(first_failure(outcomes), &outcomes[2]);
}

TEST(Headline, WhoEndsByTheSignalThatAskedForItHasNotFailed) {
  for (const int number : {SIGTERM, SIGUSR1}) {
    std::vector<RankOutcome> outcomes = {exited(0, 128 + number, 0ms), killed(1, number, 0ms)};
    EXPECT_NE(first_failure(outcomes), nullptr);
    for (RankOutcome& outcome : outcomes) outcome.told_to_stop = true;
    EXPECT_EQ(first_failure(outcomes), nullptr) << number;
  }
}

TEST(Headline, RanksWithTheSameReasonAreNotRepeated) {
  std::vector<RankOutcome> outcomes;
  for (int rank = 0; rank < 6; ++rank) {
    outcomes.push_back(exited(rank, 1, std::chrono::milliseconds(10 + rank)));
    outcomes.back().reported = "cannot read corpus.txt";
  }
  const auto text = describe_failure(*first_failure(outcomes), outcomes, 1s, 30s);
  EXPECT_THAT(text, HasSubstr("rank 0 (pid 4709): cannot read corpus.txt\n"));
  EXPECT_THAT(text, HasSubstr("  ranks 1-5 failed alike\n"));
}

TEST(Headline, CallsThatDoNotMatchAreTheCauseAndNotRepeated) {
  const auto mismatch = [](int rank) {
    return CommError(
        "[comm] all_reduce #5 of group 'shard' on rank " + std::to_string(rank) +
            " failed after 3 ms: different sizes: expected a as on global ranks 0, 1, found b on rank 2; all "
            "ranks must make the same calls in the same order",
        {.elapsed = 3ms, .timeout = 30s});
  };
  EXPECT_EQ(fault_of(mismatch(0)), Fault::own);
  EXPECT_EQ(fault_of(CommError("[comm] rank 1 is gone", {.elapsed = 3ms, .timeout = 30s})), Fault::lost_peer);
  EXPECT_EQ(fault_of(CommError("[comm] rank 1 has not called", {.elapsed = 30s, .timeout = 30s})), Fault::timeout);
  std::vector<RankOutcome> outcomes;
  for (int rank = 0; rank < 3; ++rank) {
    outcomes.push_back(exited(rank, 1, std::chrono::milliseconds(10 + rank)));
    outcomes.back().reported = mismatch(rank).what();
  }
  const auto text = describe_failure(*first_failure(outcomes), outcomes, 1s, 30s);
  EXPECT_THAT(text, HasSubstr("rank 0 (pid 4709): [comm] all_reduce #5"));
  EXPECT_THAT(text, HasSubstr("  ranks 1, 2 failed alike\n"));
}

TEST(Headline, RanksAreNamedShortly) {
  EXPECT_EQ(name_ranks({3}), "rank 3");
  EXPECT_EQ(name_ranks({0, 1, 3}), "ranks 0, 1, 3");
  EXPECT_EQ(name_ranks({0, 1, 2, 3, 4, 7, 9, 10}), "ranks 0-4, 7, 9, 10");
}

TEST(Headline, TheLastLineIsTheLastOneWithWords) {
  EXPECT_EQ(last_line_of("one\ntwo\n\n  \n"), "two");
  EXPECT_EQ(last_line_of("step 1\rstep 2\r"), "step 2");
  EXPECT_EQ(last_line_of("a\n\x1b[1;31m  red\x1b[0m\n"), "red");
  EXPECT_EQ(last_line_of("\n \n"), "");
  EXPECT_EQ(last_line_of(std::string(1000, 'x')), std::string(300, 'x') + "...");
}

}  // namespace
}  // namespace trireme::launch
