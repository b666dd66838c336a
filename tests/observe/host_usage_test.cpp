// What the kernel's files say is read from files that were made: no machine has all of them.
#include "trireme/observe/host_usage.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

namespace trireme::observe {
namespace {

namespace fs = std::filesystem;

class HostUsageFiles : public testing::Test {
 protected:
  fs::path root_ = fs::path(testing::TempDir()) / ("host_usage_" + std::to_string(getpid()));
  cpu_set_t before_;

  void SetUp() override {
    ASSERT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  void TearDown() override {
    sched_setaffinity(0, sizeof before_, &before_);
    fs::remove_all(root_);
  }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
};

TEST_F(HostUsageFiles, AMachineWithoutThemTellsNothing) {
  const HostUsage usage = read_host_usage(root_);
  EXPECT_EQ(usage.swapped_bytes, 0);
  EXPECT_EQ(usage.megahertz, 0);
  EXPECT_EQ(usage.busy_seconds, 0);
  EXPECT_EQ(usage.waited_for_disk(), 0);
  EXPECT_EQ(usage.longest_wait(), 0);
}

TEST_F(HostUsageFiles, EachFigureHasItsFile) {
  const std::string mine = std::to_string(sched_getcpu()), other = std::to_string(sched_getcpu() + 1);
  const double tick = 1.0 / double(sysconf(_SC_CLK_TCK));
  write("proc/stat", "cpu  9 9 9 9 9 9 9 9 0 0\ncpu" + mine + " 100 20 30 400 50 6 7 80 0 0\ncpu" + other +
                         " 5000 0 0 0 0 0 0 900 0 0\nintr 1\n");
  write("proc/self/status", "Name:\ttrireme\nVmSwap:\t    2048 kB\n");
  write("proc/self/stat",
        "1 (a) b) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 "
        "33 34 35 36 37 38 39 40 41 300 43\n");
  write("proc/self/task/7/schedstat", "1000000000 250000000 3\n");
  write("proc/self/task/8/schedstat", "1000000000 500000000 3\n");
  write("sys/devices/system/cpu/cpu" + mine + "/cpufreq/scaling_cur_freq", "2400000\n");
  const HostUsage usage = read_host_usage(root_);
  EXPECT_DOUBLE_EQ(usage.busy_seconds, (100 + 20 + 30 + 6 + 7) * tick);
  EXPECT_DOUBLE_EQ(usage.stolen_seconds, 80 * tick);
  EXPECT_DOUBLE_EQ(usage.idle_seconds, (400 + 50) * tick);
  EXPECT_DOUBLE_EQ(usage.idle_for_disk_seconds, 50 * tick);
  EXPECT_DOUBLE_EQ(usage.waited_for_disk(), 300 * tick);  // what the kernel counted of this process is more
  EXPECT_EQ(usage.swapped_bytes, 2 << 20);
  EXPECT_DOUBLE_EQ(usage.disk_seconds, 300 * tick);
  EXPECT_DOUBLE_EQ(usage.longest_wait(), 0.5);
  EXPECT_DOUBLE_EQ(usage.megahertz, 2400);

  write("proc/self/task/7/schedstat", "1000000000 950000000 3\n");
  write("proc/stat", "cpu" + mine + " 100 20 30 420 90 6 7 80 0 0\n");
  const HostUsage later = read_host_usage(root_) - usage;
  EXPECT_NEAR(later.waited_for_disk(), 40 * tick, 1e-9);
  EXPECT_NEAR(later.idle_seconds, 60 * tick, 1e-9);
  EXPECT_DOUBLE_EQ(later.longest_wait(), 0.7);  // of thread 7
  EXPECT_EQ(later.busy_seconds, 0);
  EXPECT_DOUBLE_EQ(later.megahertz, 2400);

  const std::vector<int> two = {sched_getcpu(), sched_getcpu() + 1};
  write("proc/stat", "cpu" + mine + " 100 20 30 420 90 6 7 80 0 0\ncpu" + other + " 5000 0 0 30 0 0 0 900 0 0\n");
  EXPECT_DOUBLE_EQ(read_host_usage(root_, &two).idle_seconds, (420 + 90 + 30) * tick);  // more than those it is on
}

}  // namespace
}  // namespace trireme::observe
