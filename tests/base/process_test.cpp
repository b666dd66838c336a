#include "trireme/base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

}  // namespace
}  // namespace trireme::base
