// kill -9 in the middle of a save: afterwards the newest checkpoint is a whole one, no older than the last one
// that was reported, and nothing else can be seen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <thread>

#include "fixtures.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/verify.h"

extern char** environ;

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kScale = 300;

bool has_unfinished_folder(const fs::path& out) {
  std::error_code gone;  // the saver renames and deletes while the folder is read
  for (const auto& entry : fs::directory_iterator(out, gone)) {
    if (entry.path().filename().string().starts_with(".tmp-")) return true;
  }
  return false;
}

/// Returns while `child` is stopped in the middle of a save into `out`. A stopped process finishes nothing, so the
/// unfinished folder that is seen then is still there when the process is killed, on a busy machine too.
void stop_inside_a_save(pid_t child, const fs::path& out) {
  for (;;) {
    if (has_unfinished_folder(out)) {
      ::kill(child, SIGSTOP);
      int status = 0;
      ::waitpid(child, &status, WUNTRACED);
      if (!WIFSTOPPED(status) || has_unfinished_folder(out)) return;
      ::kill(child, SIGCONT);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

/// Starts checkpoint_saver on `out`, waits until it has reported its first checkpoint and `delay` has passed, and
/// kills it: wherever it is, or, if `inside_a_save`, in the middle of its next save. Gives the last step that it
/// reported.
int64_t run_and_kill(const fs::path& out, int64_t first_step, std::chrono::microseconds delay, bool inside_a_save,
                     std::string how) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::string program = TRIREME_CHECKPOINT_SAVER, folder = out.string(), step = std::to_string(first_step);
  char* arguments[] = {program.data(), folder.data(), step.data(), how.data(), nullptr};
  pid_t child = 0;
  EXPECT_EQ(::posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  FILE* reports = ::fdopen(ends[0], "r");
  long last = -1, reported = 0;
  if (std::fscanf(reports, "%ld", &reported) == 1) last = reported;
  std::this_thread::sleep_for(delay);
  if (inside_a_save) stop_inside_a_save(child, out);
  ::kill(child, SIGKILL);
  while (std::fscanf(reports, "%ld", &reported) == 1) last = reported;
  std::fclose(reports);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the saver ended by itself";
  return last;
}

void kill_again_and_again(const std::string& how) {
  const ScratchFolder out;
  std::mt19937_64 random(4711);
  const int kills = slow_tests() ? 100 : 6;
  int interrupted = 0;
  int64_t next_step = 1;
  for (int i = 0; i < kills; ++i) {
    const int64_t reported = run_and_kill(out.path(), next_step, std::chrono::microseconds(random() % 150'000),
                                          /*inside_a_save=*/i % 2 == 0, how);
    ASSERT_GE(reported, next_step) << "nothing was saved before the kill";
    const auto latest = find_latest(out.path());
    ASSERT_TRUE(latest.has_value());
    const int64_t step = open_checkpoint(*latest).step;
    EXPECT_GE(step, reported);
    EXPECT_LE(step, reported + 1);
    const VerifyReport report = verify(*latest);
    EXPECT_TRUE(report.problems.empty()) << report.problems[0];
    EXPECT_EQ(count_wrong_elements(*latest, step, kScale), 0);
    for (const StepFolder& folder : list_step_folders(out.path())) EXPECT_EQ(verdict_of(folder.path).problem, "");
    for (const auto& entry : fs::directory_iterator(out.path())) {
      interrupted += entry.path().filename().string().starts_with(".tmp-");
    }
    next_step = step + 1;
  }
  std::printf("%d kills, %d unfinished folders left behind\n", kills, interrupted);
  EXPECT_GT(interrupted, 0) << "no kill hit a save";
  save_sample(out.path(), next_step, 1);
  for (const auto& entry : fs::directory_iterator(out.path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-")) << "leftovers go with the next save";
  }
}

TEST(Kill, AnInterruptedSaveIsInvisibleAndThePreviousOneIsWhole) { kill_again_and_again("at-once"); }

TEST(Kill, SoIsOneInterruptedBesideTraining) { kill_again_and_again("beside"); }

}  // namespace
}  // namespace trireme::checkpoint
