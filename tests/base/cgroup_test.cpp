#include "trireme/base/cgroup.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace trireme::base {
namespace {

class CgroupFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "trireme-cgroup-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void put(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  std::string folder() const { return folder_.string(); }
  std::filesystem::path folder_;
};

TEST(Cgroup, FoldersComeFromTheMountThatHoldsTheController) {
  const char* groups = "4:memory:/docker/1234\n2:cpu,cpuacct:/docker/1234\n0::/user.slice/job\n";
  const char* mounts =
      "30 23 0:27 / /proc rw,relatime - proc proc rw\n"
      "35 31 0:32 /docker/1234 /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory\n"
      "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(cgroup_folder(groups, mounts, ""), "/sys/fs/cgroup/unified/user.slice/job");
  EXPECT_EQ(cgroup_folder(groups, mounts, "memory"), "/sys/fs/cgroup/memory");
  EXPECT_EQ(cgroup_folder(groups, mounts, "cpu"), "/sys/fs/cgroup/cpu,cpuacct/docker/1234");
  EXPECT_EQ(cgroup_folder(groups, mounts, "blkio"), "");
  const char* other = "35 31 0:32 /docker/12 /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory\n";
  EXPECT_EQ(cgroup_folder(groups, other, "memory"), "/sys/fs/cgroup/memory/docker/1234") << "/docker/12 is another one";
}

TEST_F(CgroupFiles, VersionTwoIsRead) {
  put("memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n");
  put("memory.max", "66571993088\n");
  put("cpu.max", "150000 100000\n");
  const Cgroup group(folder(), "", "");
  EXPECT_EQ(group.oom_kills(), 2u);
  EXPECT_EQ(group.memory_limit_bytes(), 66571993088u);
  EXPECT_EQ(group.cpu_quota(), 1.5);
  put("memory.max", "max\n");
  put("cpu.max", "max 100000\n");
  EXPECT_EQ(group.memory_limit_bytes(), std::nullopt);
  EXPECT_EQ(group.cpu_quota(), std::nullopt);
}

TEST_F(CgroupFiles, TheLeastOfAllGroupsAroundItCounts) {
  std::filesystem::create_directories(folder_ / "step/task");
  put("memory.max", "1000000\n");
  put("cpu.max", "200000 100000\n");
  put("step/memory.max", "2000000\n");
  put("step/cpu.max", "max 100000\n");
  put("step/task/memory.max", "max\n");
  for (const char* deepest : {"/step", "/step/task"}) {  // a group need not have all controllers
    const Cgroup group(folder() + deepest, "", "");
    EXPECT_EQ(group.memory_limit_bytes(), 1000000u);
    EXPECT_EQ(group.cpu_quota(), 2);
  }
  put("cpu.cfs_quota_us", "50000\n");
  put("cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Cgroup("", "", folder() + "/step").cpu_quota(), 0.5);
}

TEST_F(CgroupFiles, VersionOneIsRead) {
  put("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  put("memory.limit_in_bytes", "9223372036854771712\n");
  put("cpu.cfs_quota_us", "-1\n");
  put("cpu.cfs_period_us", "100000\n");
  const Cgroup group("", folder(), folder());
  EXPECT_EQ(group.oom_kills(), 5u);
  EXPECT_EQ(group.memory_limit_bytes(), std::nullopt);
  EXPECT_EQ(group.cpu_quota(), std::nullopt);
  put("memory.limit_in_bytes", "1073741824\n");
  put("cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(group.memory_limit_bytes(), 1073741824u);
  EXPECT_EQ(group.cpu_quota(), 2.0);
}

// A task's group has no limit, the job's around it has; a file in the cache is given back.
TEST_F(CgroupFiles, WhatIsLeftIsTheLeastOfTheGroupsAround) {
  put("memory.max", "1000000\n");
  put("memory.current", "900000\n");
  put("memory.stat", "anon 300000\ninactive_file 500000\n");
  std::filesystem::create_directories(folder_ / "step" / "task");
  put("step/memory.max", "2000000\n");
  put("step/memory.current", "100000\n");
  put("step/task/memory.max", "max\n");
  put("step/task/memory.current", "100000\n");
  EXPECT_EQ(Cgroup(folder() + "/step/task", "", "").memory_left_bytes(), 600000);
  put("step/memory.max", "300000\n");
  EXPECT_EQ(Cgroup(folder() + "/step/task", "", "").memory_left_bytes(), 200000);
}

TEST_F(CgroupFiles, VersionOneLeavesMemoryToo) {
  put("memory.limit_in_bytes", "9223372036854771712\n");
  put("memory.usage_in_bytes", "700000\n");
  EXPECT_EQ(Cgroup("", folder(), "").memory_left_bytes(), std::nullopt);
  put("memory.limit_in_bytes", "600000\n");
  EXPECT_EQ(Cgroup("", folder(), "").memory_left_bytes(), 0);
}

TEST(Cgroup, AbsentFilesAreNoAnswer) {
  const Cgroup group("/no/such/folder", "", "");
  EXPECT_EQ(group.oom_kills(), std::nullopt);
  EXPECT_EQ(group.memory_limit_bytes(), std::nullopt);
  EXPECT_EQ(group.cpu_quota(), std::nullopt);
  EXPECT_EQ(group.memory_left_bytes(), std::nullopt);
}

}  // namespace
}  // namespace trireme::base
