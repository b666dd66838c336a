// All ranks start again after a failure, until it is plain that it would not help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/supervise/launch.h"

#include "job.h"

namespace trireme::launch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> runs_in(const std::string& text) {
  constexpr std::string_view kName = "TRIREME_RUN=";
  std::vector<std::string> runs;
  for (auto at = text.find(kName); at != std::string::npos; at = text.find(kName, at + 1))
    runs.push_back(text.substr(at + kName.size(), 16));
  return runs;
}

TEST(Restart, RanksStartAgainUntilTheySucceed) {
  Job job({"--launch", "2", "--restarts", "3", "--", "*:env:TRIREME_RESTART_COUNT", "*:env:TRIREME_RUN",
           "1:count_steps", "1:exit_before:2", "*:print:done"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("restart 1 of 3 in 1 s"), HasSubstr("restart 2 of 3 in 2 s"),
                               Not(HasSubstr("restart 3 of 3")), Not(HasSubstr("not started again"))));
  EXPECT_THAT(job.out() + job.err(), AllOf(HasSubstr("TRIREME_RESTART_COUNT=(unset)"),
                                           HasSubstr("TRIREME_RESTART_COUNT=1"), HasSubstr("TRIREME_RESTART_COUNT=2")));
  const std::vector<std::string> runs = runs_in(job.out() + job.err());
  EXPECT_GE(runs.size(), 3U);
  EXPECT_EQ(std::set(runs.begin(), runs.end()).size(), 1U);  // all attempts are one run
  EXPECT_EQ(runs.at(0).find_first_not_of("0123456789abcdef"), std::string::npos) << runs.at(0);
  EXPECT_TRUE(job.processes().empty());
}

TEST(Restart, TheSameFailureAtTheSameStepIsNotTriedAThirdTime) {
  Job job({"--launch", "2", "--restarts", "5", "--", "1:status:step 7", "1:fail:the loss is not a number", "1:exit:1"});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("restart 1 of 5"), Not(HasSubstr("restart 2 of 5")),
                               HasSubstr("not started again: rank 1 failed at step 7 (the loss is not a number), for "
                                         "the second time")));
}

TEST(Restart, TheyAreCounted) {
  Job job({"--launch", "1", "--restarts", "1", "--", "0:count_steps", "0:exit:9"});
  EXPECT_EQ(job.wait(), 9);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("restart 1 of 1"), HasSubstr("the one restart is used up")));
}

TEST(Restart, ARefusalIsNotTriedAgain) {
  Job job({"--launch", "2", "--restarts", "3", "--", "*:fail:no such file", "*:exit:2"});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.err(), Not(HasSubstr("restart")));
}

TEST(Restart, AStopThatWasAskedForIsNotTriedAgain) {
  Job job({"--launch", "2", "--restarts", "3", "--", "*:print:ready", "*:sleep:60000"});
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_THAT(job.err(), Not(HasSubstr("restart")));
}

}  // namespace
}  // namespace trireme::launch::testing
