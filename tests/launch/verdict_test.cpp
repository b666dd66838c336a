#include "trireme/launch/machines/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using Kind = RoundResult::Kind;
using ::testing::HasSubstr;

const RoundResult kDone{.kind = Kind::done, .machine = "a"}, kOver{.kind = Kind::over, .machine = "a"},
    kFailed{.kind = Kind::failed, .who = "rank 1", .words = "failed at step 7 (x)", .machine = "b"},
    kFailedLater{.kind = Kind::failed, .who = "rank 1", .words = "failed at step 9 (x)", .machine = "b"},
    kConsequence{.kind = Kind::consequence, .who = "rank 0", .words = "lost rank 1", .machine = "a"},
    kLost{.kind = Kind::lost, .machine = "c"};

Verdict judged(std::vector<RoundResult> results, int max_restarts, History& history) {
  return judge(results, max_restarts, history);
}

TEST(Verdict, NothingIsTriedAgainThatIsDoneOrOver) {
  History history;
  EXPECT_FALSE(judged({kDone, kDone}, 5, history).again);
  EXPECT_FALSE(judged({kFailed, kOver, kLost}, 5, history).again);
  EXPECT_EQ(history.restarts, 0);
}

TEST(Verdict, TheCauseIsNamedNotItsConsequence) {
  History history;
  EXPECT_THAT(judged({kConsequence, kFailed}, 5, history).why,
              HasSubstr("restart 1 of 5 in 1 s: rank 1 failed at step 7 (x) on machine b"));
  EXPECT_THAT(judged({kConsequence, kLost}, 5, history).why, HasSubstr("restart 2 of 5 in 2 s: machine c is gone"));
  EXPECT_THAT(judged({kConsequence, kDone}, 5, history).why, HasSubstr("restart 3 of 5 in 4 s: rank 0 lost rank 1"));
}

TEST(Verdict, TheSameWordsTwiceEndTheJob) {
  History history;
  EXPECT_TRUE(judged({kFailed, kConsequence}, 5, history).again);
  EXPECT_TRUE(judged({kFailedLater, kConsequence}, 5, history).again);
  const Verdict last = judged({kFailedLater, kConsequence}, 5, history);
  EXPECT_FALSE(last.again);
  EXPECT_EQ(last.why, "not started again: rank 1 failed at step 9 (x) on machine b, for the second time");
}

TEST(Verdict, AnExitOfWhichNothingIsKnownIsNotTheSameAgain) {
  History history;
  const RoundResult unknown{.kind = Kind::failed, .who = "rank 1", .words = "failed (exit code 1)", .is_known = false};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(judged({result_of(text_of(unknown))}, 3, history).again);
  EXPECT_EQ(judged({unknown}, 3, history).why,
            "not started again: rank 1 failed (exit code 1), and all 3 restarts are used up");
}

TEST(Verdict, WhichRankHadAFailureFirstIsChance) {
  History history;
  RoundResult elsewhere = kFailed;
  elsewhere.who = "rank 2";
  EXPECT_TRUE(judged({kFailed, kConsequence}, 5, history).again);
  const Verdict last = judged({elsewhere, kConsequence}, 5, history);
  EXPECT_EQ(last.why, "not started again: rank 2 failed at step 7 (x) on machine b, for the second time");
}

TEST(Verdict, AMachineMayBeLostAsOftenAsThereAreRestarts) {
  History history;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(judged({kLost, kConsequence}, 3, history).again);
  const Verdict last = judged({kLost, kConsequence}, 3, history);
  EXPECT_FALSE(last.again);
  EXPECT_THAT(last.why, HasSubstr("all 3 restarts are used up"));
}

TEST(Verdict, PausesGrowToAMinute) {
  EXPECT_EQ(pause_before_restart(0), 1s);
  EXPECT_EQ(pause_before_restart(5), 32s);
  EXPECT_EQ(pause_before_restart(6), 60s);
  EXPECT_EQ(pause_before_restart(1000), 60s);
}

TEST(Verdict, ARefusalIsTheSameOnAllMachines) {
  History history;
  const RoundResult refused{.kind = Kind::refused, .words = "its ranks were refused", .machine = "b"};
  for (const std::vector<RoundResult>& results :
       {std::vector{kConsequence, refused}, {kOver, refused}, {kFailed, refused}}) {
    const Verdict verdict = verdict_of(text_of(judged(results, 5, history)));
    EXPECT_FALSE(verdict.again);
    EXPECT_TRUE(verdict.refused);
    EXPECT_EQ(verdict.why, "the ranks of machine b were refused; its launcher says why");
  }
  EXPECT_FALSE(verdict_of(text_of(judged({kOver, kDone}, 5, history))).refused);
}

TEST(Verdict, TravelsAsText) {
  const RoundResult result = result_of(text_of(kFailed));
  EXPECT_EQ(result.kind, kFailed.kind);
  EXPECT_EQ(result.who, kFailed.who);
  EXPECT_EQ(result.words, kFailed.words);
  EXPECT_EQ(result.machine, kFailed.machine);
  const Verdict verdict = verdict_of(text_of(Verdict{true, 4s, "why\nso"}));
  EXPECT_TRUE(verdict.again);
  EXPECT_EQ(verdict.pause, 4s);
  EXPECT_EQ(verdict.why, "why\nso");
  EXPECT_ANY_THROW(result_of("nonsense"));
}

}  // namespace
}  // namespace trireme::launch
