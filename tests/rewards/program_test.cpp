// Programs as rewards: what they are given, and what is said of those that do not do as they should.
#include "trireme/rewards/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "trireme/base/json.h"

namespace trireme::rewards {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const nlohmann::json kOthers = {{"answer", "42"}};

std::vector<Answer> answers(int count) {
  std::vector<Answer> all;
  for (int i = 0; i < count; ++i)
    all.push_back({.prompt = "6 x 7 =",
                   .completion = std::string(static_cast<size_t>(i), 'a'),
                   .row = &kOthers,
                   .tokens = i,
                   .is_truncated = i == 1,
                   .prompt_number = 3,
                   .sample = i});
  return all;
}

RewardSettings shell(const std::string& script, int milliseconds = 20000) {
  return {.functions = {{"command"}},
          .command = {{"sh", "-c", script}},
          .command_timeout = std::chrono::milliseconds(milliseconds)};
}

std::string failure(ProgramReward& reward, int count = 3) {
  const std::vector<Answer> all = answers(count);
  try {
    reward.score(all, 1);
  } catch (const Failure& failure) {
    return failure.what();
  } catch (const Error& error) {
    return std::string("the run ends: ") + error.what();
  }
  return "none";
}
std::string failure(const RewardSettings& settings, int count = 3) {
  ProgramReward reward(settings);
  return failure(reward, count);
}

TEST(Program, GetsALineForEachAnswerAndGivesANumberOrNull) {
  const std::string kept = testing::TempDir() + "program_lines_" + std::to_string(getpid());
  ProgramReward reward(shell("while read -r line; do echo \"$line\" >> " + kept +
                             "; echo 0.25; read -r line; echo null; read -r line; echo -1e2; done"));
  const std::vector<Answer> all = answers(3);
  for (int64_t step = 1; step <= 2; ++step) EXPECT_EQ(reward.score(all, step), (Scores{0.25, std::nullopt, -100.0}));
  std::ifstream file(kept);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(base::parse_json(line), nlohmann::json({{"prompt", "6 x 7 ="},
                                                    {"completion", ""},
                                                    {"step", 1},
                                                    {"prompt_number", 3},
                                                    {"sample", 0},
                                                    {"tokens", 0},
                                                    {"truncated", false},
                                                    {"row", {{"answer", "42"}}}}));
  ASSERT_TRUE(std::getline(file, line));  // of the same process
  EXPECT_EQ(base::parse_json(line)["step"], 2);
  unlink(kept.c_str());
}

TEST(Program, TakesLongAnswersAndTextThatIsNoUtf8) {
  ProgramReward reward(shell("while read -r line; do echo ${#line}; done"));
  std::vector<Answer> all = answers(2);
  all[0].completion = std::string(3 << 20, 'x');
  all[1].completion = "\xff\n";
  const Scores scores = reward.score(all, 1);
  EXPECT_GT(*scores[0], 3 << 20);
  EXPECT_LT(*scores[1], 300);
}

TEST(Program, ThatDoesOtherwiseIsToldInOneSentence) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(failure(shell("read -r line; echo 1; sleep 100", 300)),
              AllOf(StartsWith("reward.command sh -c read"),
                    HasSubstr("gave 1 of 3 rewards within 0.3 s; allow more with reward.command_timeout")));
  EXPECT_THAT(failure(shell("yes 123456789012345678901234567890 | tr -d '\\n'")), HasSubstr("printed more than 1"));
  EXPECT_THAT(failure(shell("echo good; cat > /dev/null")),
              HasSubstr("printed \"good\" as reward 1 of 3; it must print one number"));
  EXPECT_THAT(failure(shell("echo nan; cat > /dev/null")), HasSubstr("printed \"nan\" as reward 1"));
  EXPECT_THAT(failure(shell("read -r line; echo 1; exit 3")), HasSubstr("ended with exit code 3 after 1 of 3 rewards"));
  EXPECT_THAT(failure(shell("kill -9 $$")), HasSubstr("was ended by signal 9"));
  EXPECT_THAT(failure(shell("cat > /dev/null & exit 0")), HasSubstr("ended with exit code 0 after 0 of 3 rewards"));
  EXPECT_THAT(failure(shell("echo 1; echo 2; echo 3; printf 4; cat > /dev/null")),
              testing::AnyOf("none", HasSubstr("printed \"4\" after the last reward, so")));
  RewardSettings small = shell("exec python3 -c 'x = bytearray(1 << 30)'");
  small.command_memory = 256 << 20;
  EXPECT_THAT(failure(small), HasSubstr("ended with exit code 1"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(Program, DoesNotGiveTheNextAnswersWhatItPrintedTooMuch) {
  ProgramReward reward(shell("while read -r line; do echo 1; read -r line; echo 1; sleep 0.05; echo 9; done"));
  EXPECT_EQ(reward.score(answers(2), 1), (Scores{1.0, 1.0}));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_THAT(failure(reward, 2), AllOf(StartsWith("the run ends: "),
                                        HasSubstr("after the last reward, so rewards may be those of other answers; "
                                                  "it must print one number")));
}

TEST(Program, ThatHangsDoesNotCostItsTimeForEachPrompt) {
  ProgramReward reward(shell("sleep 100", 50));
  for (int prompt = 0; prompt < 2; ++prompt)
    EXPECT_THAT(failure(reward), HasSubstr("gave 0 of 3 rewards within 0.05 s"));
  EXPECT_THAT(failure(reward), AllOf(StartsWith("the run ends: "), HasSubstr("(3 prompts in a row)")));
}

TEST(Program, IsStartedAnewAfterAFailure) {
  ProgramReward reward(shell("read -r line; echo 1; read -r line; [ -e " + testing::TempDir() + "absent ] || exit 1"));
  EXPECT_THAT(failure(reward), HasSubstr("ended with exit code 1"));
  EXPECT_EQ(reward.score(answers(1), 1), Scores{1.0});
}

// How many processes the file names; each of them has to be gone within two seconds.
int count_gone(const std::string& pids) {
  std::ifstream file(pids);
  int count = 0;
  for (pid_t pid; file >> pid; ++count) {
    bool gone = false;
    for (int i = 0; i < 200 && !gone; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      std::ifstream state("/proc/" + std::to_string(pid) + "/stat");
      std::string number, name, letter;
      gone = !(state >> number >> name >> letter) || letter == "Z";
    }
    EXPECT_TRUE(gone) << pid;
  }
  return count;
}

// A single rank has no launcher, and SIGKILL lets it do nothing.
TEST(Program, LeavesNoProcessOfItsGroupWhenItsUserIsKilled) {
  const std::string pids = testing::TempDir() + "program_killed_" + std::to_string(getpid());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t user = fork();
  if (user == 0) {
    close(ready[0]);
    ProgramReward reward(shell("sleep 1000 > /dev/null 2>&1 & echo $! > " + pids + "; echo $$ >> " + pids +
                               "; while read -r line; do echo 1; done"));
    reward.score(answers(1), 1);
    [[maybe_unused]] const ssize_t written = write(ready[1], "", 1);
    for (;;) pause();
  }
  close(ready[1]);
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  kill(user, SIGKILL);
  waitpid(user, nullptr, 0);
  EXPECT_EQ(count_gone(pids), 2);
  unlink(pids.c_str());
}

TEST(Program, LeavesNoProcessOfItsGroup) {
  const std::string pids = testing::TempDir() + "program_pids_" + std::to_string(getpid());
  {
    ProgramReward reward(shell("sleep 1000 > /dev/null 2>&1 & echo $! > " + pids + "; echo $$ >> " + pids +
                               "; while read -r line; do echo 1; done"));
    reward.score(answers(1), 1);
  }
  EXPECT_EQ(count_gone(pids), 2);
  unlink(pids.c_str());
}

TEST(Program, ThatIsNotThereIsRefused) {
  try {
    const ProgramReward absent({.command = {{"no-such-program-here"}}});
    FAIL() << "it was taken";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("there is no program no-such-program-here that may be executed"));
  }
}

}  // namespace
}  // namespace trireme::rewards
