#include "trireme/launch/machines/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <optional>
#include <thread>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Lock : public ::testing::Test {
 protected:
  Lock() : folder_(fs::temp_directory_path() / ("trireme-lock-" + std::to_string(getpid()))) {
    for (const char* name :
         {"SLURM_JOB_ID", "SLURM_JOB_NAME", "KUBERNETES_SERVICE_HOST", "FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID"})
      ::unsetenv(name);
  }
  ~Lock() override {
    ::unsetenv("SLURM_JOB_ID");
    ::unsetenv("SLURM_JOB_NAME");
    fs::remove_all(folder_);
  }

  LockOptions options() const { return {.folder = folder_, .command = "trireme pretrain", .job_id = "job-1"}; }

  std::string refusal(const LockOptions& options) const {
    try {
      FolderLock lock(options);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  }

  const fs::path folder_;
};

TEST_F(Lock, ASecondJobIsRefusedWithTheFirstOnesHostProcessAndStart) {
  FolderLock first(options());
  EXPECT_THAT(refusal(options()),
              AllOf(HasSubstr(folder_.string() + " is in use by another job: trireme pretrain, process " +
                              std::to_string(getpid()) + " on "),
                    HasSubstr(" since 20"), HasSubstr(" UTC; "), HasSubstr("choose another --out_dir")));
  EXPECT_THROW(refuse_while_in_use(folder_), UsageError);
}

TEST_F(Lock, IsFreeWhenItsHolderIsGoneAndThenSaysNothing) {
  fs::create_directories(folder_);
  std::optional<FolderLock> first(std::in_place, options());
  first.reset();
  EXPECT_FALSE(lock_holder(folder_));
  EXPECT_EQ(refusal(options()), "");
  EXPECT_NO_THROW(refuse_while_in_use(folder_));
}

TEST_F(Lock, DiesWithTheProcessesThatHoldItOneOfThemByInheritance) {
  fs::create_directories(folder_);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    FolderLock lock(options());
    const pid_t heir = fork();
    if (heir != 0) [[maybe_unused]]
      const long written = write(ready[1], &heir, sizeof heir);
    while (true) pause();
  }
  pid_t heir = 0;
  ASSERT_EQ(read(ready[0], &heir, sizeof heir), static_cast<long>(sizeof heir));
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_THROW(refuse_while_in_use(folder_), UsageError) << "the heir holds it still";
  std::thread killer([heir] {
    std::this_thread::sleep_for(300ms);
    kill(heir, SIGKILL);
  });
  // The launcher is seen to be gone: its last rank has a moment to follow.
  EXPECT_EQ(refusal(options()), "");
  killer.join();
}

TEST_F(Lock, AJobThatWasQueuedAgainWaitsForItselfAndNoOtherDoes) {
  ::setenv("SLURM_JOB_ID", "4711", 1);
  ::setenv("SLURM_JOB_NAME", "austen", 1);
  std::optional<FolderLock> first(std::in_place, options());
  LockOptions again = options();
  again.waits_for_its_own = true;
  again.patience = 200ms;
  EXPECT_THAT(refusal(again),
              AllOf(HasSubstr("Slurm job 4711 (austen), trireme pretrain"), HasSubstr("which has not ended within")));
  again.patience = 30s;
  ::setenv("SLURM_JOB_ID", "4712", 1);
  ::setenv("SLURM_JOB_NAME", "other", 1);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(refusal(again), HasSubstr("Slurm job 4711 (austen)"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  ::setenv("SLURM_JOB_ID", "4711", 1);
  std::thread ends([&] {
    std::this_thread::sleep_for(200ms);
    first.reset();
  });
  EXPECT_EQ(refusal(again), "");
  ends.join();
}

TEST_F(Lock, AFolderThatWasMadeForAJobThatNeverBeganGoesWithIt) {
  LockOptions deep = options();
  deep.folder = folder_ / "a" / "b";
  {
    FolderLock lock(deep);
  }
  EXPECT_FALSE(fs::exists(folder_));
  {
    FolderLock lock(deep);
    lock.begin();
  }
  EXPECT_TRUE(fs::exists(deep.folder));
  {
    FolderLock lock(deep);
  }
  EXPECT_TRUE(fs::exists(deep.folder)) << "it was there before";
}

TEST_F(Lock, FollowsNoLink) {
  fs::create_directories(folder_);
  fs::create_symlink("/tmp/somewhere-else", folder_ / kLockName);
  EXPECT_THROW(FolderLock{options()}, base::FileError);
}

TEST(JobName, IsTheSchedulersAndThePodsOwnersForPods) {
  const auto named = [](const std::map<std::string, std::string>& variables) {
    return job_name([&](const char* name) -> const char* {
             const auto found = variables.find(name);
             return found == variables.end() ? nullptr : found->second.c_str();
           })
        .text();
  };
  EXPECT_EQ(named({}), "");
  EXPECT_EQ(named({{"HOSTNAME", "laptop-1"}}), "");
  EXPECT_EQ(named({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NAME", "x"}}), "Slurm job 7 (x)");
  EXPECT_EQ(named({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NAME", "x"}, {"SLURM_ARRAY_TASK_ID", "3"}}),
            "Slurm job 7 (x[3])");
  EXPECT_EQ(named({{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"HOSTNAME", "mine-x7z9q"}}), "Kubernetes job mine");
  EXPECT_EQ(named({{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"HOSTNAME", "mine-12"}, {"JOB_COMPLETION_INDEX", "12"}}),
            "Kubernetes job mine");
}

}  // namespace
}  // namespace trireme::launch
