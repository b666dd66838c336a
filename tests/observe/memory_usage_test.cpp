#include "trireme/observe/memory_usage.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace trireme::observe {
namespace {

constexpr int64_t kBlock = int64_t{32} << 20;
#ifdef TRIREME_SANITIZED
constexpr bool kShadowMemory = true;  // a sanitizer's notes about our pages are private pages too
#else
constexpr bool kShadowMemory = false;
#endif

char* touched(int flags) {
  void* block = ::mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(block, MAP_FAILED);
  std::memset(block, 1, kBlock);
  return static_cast<char*>(block);
}

MemoryUsage usage_now() { return read_memory_usage().value(); }

TEST(MemoryUsage, PagesOfOurOwnArePrivate) {
  if (!read_memory_usage()) GTEST_SKIP() << "this kernel has no /proc/self/smaps_rollup";
  const auto before = usage_now();
  char* block = touched(MAP_PRIVATE);
  const auto after = usage_now();
  ::munmap(block, kBlock);
  EXPECT_GT(after.private_bytes - before.private_bytes, kBlock * 99 / 100);
  EXPECT_GT(after.rss_bytes() - before.rss_bytes(), kBlock * 99 / 100);
  if (kShadowMemory) return;
  EXPECT_LT(after.private_bytes - before.private_bytes, kBlock * 101 / 100);
  EXPECT_LT(after.shared_bytes - before.shared_bytes, kBlock / 100);
}

TEST(MemoryUsage, PagesThatAnotherProcessMapsAreSharedAndHalfOfThemCountInPss) {
  if (!read_memory_usage()) GTEST_SKIP() << "this kernel has no /proc/self/smaps_rollup";
  char* block = touched(MAP_SHARED);
  const auto alone = usage_now();
  int ready[2], done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    for (int64_t at = 0; at < kBlock; at += 4096) block[at] = 2;
    char byte = 0;
    ::close(done[1]);
    if (::write(ready[1], "x", 1) == 1 && ::read(done[0], &byte, 1) >= 0) ::_exit(0);
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto both = usage_now();
  const auto of_child = read_memory_usage(child);
  ::close(done[1]);
  ::waitpid(child, nullptr, 0);
  ::munmap(block, kBlock);
  EXPECT_GT(both.shared_bytes - alone.shared_bytes, kBlock * 9 / 10);
  ASSERT_TRUE(of_child);
  EXPECT_GT(of_child->shared_bytes, kBlock * 9 / 10);
  EXPECT_LT(both.pss_bytes, both.rss_bytes() - kBlock * 4 / 10);
}

TEST(MemoryUsage, AProcessThatIsNotThereGivesNothing) { EXPECT_FALSE(read_memory_usage(0x7FFFFFFF)); }

TEST(MemoryUsage, TouchingFreshPagesCountsMinorFaults) {
  const auto before = page_faults();
  char* block = static_cast<char*>(::mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::madvise(block, kBlock, MADV_NOHUGEPAGE);
  for (int64_t at = 0; at < kBlock; at += 4096) block[at] = 1;
  const auto after = page_faults();
  ::munmap(block, kBlock);
  EXPECT_GE(after.minor - before.minor, kBlock / 4096);
}

}  // namespace
}  // namespace trireme::observe
