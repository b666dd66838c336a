// A machine with more CPUs than a cpu_set_t holds is pretended.
#include "trireme/base/usable_cpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

static size_t pretended_cpus = 0;
static constexpr size_t kHighCpu = 1500;

// In place of the C library's.
extern "C" int sched_getaffinity(pid_t pid, size_t size, cpu_set_t* cpus) noexcept {
  if (size * 8 < pretended_cpus) {
    errno = EINVAL;
    return -1;
  }
  std::memset(cpus, 0, size);
  if (pretended_cpus > 0) {
    CPU_SET_S(3, size, cpus);
    CPU_SET_S(kHighCpu, size, cpus);
    return 0;
  }
  return syscall(SYS_sched_getaffinity, pid, size, cpus) < 0 ? -1 : 0;
}

namespace trireme::base {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(UsableCpus, AreThoseThatThisThreadIsPinnedTo) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  const int here = sched_getcpu();
  CPU_SET(static_cast<size_t>(here), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_THAT(usable_cpus(), ElementsAre(here));
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(static_cast<int>(usable_cpus().size()), CPU_COUNT(&before));
}

TEST(UsableCpus, OfAKernelWithMoreThanASetHolds) {
  pretended_cpus = 2048;
  EXPECT_THAT(usable_cpus(), ElementsAre(3, static_cast<int>(kHighCpu)));
  pretended_cpus = 4 * kMostCpus;
  EXPECT_THAT(usable_cpus(), IsEmpty());
  pretended_cpus = 0;
}

}  // namespace
}  // namespace trireme::base
