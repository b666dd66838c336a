#include "trireme/bench/disk.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trireme/base/files.h"
#include "trireme/engine/arena.h"
#include "trireme/engine/block_io.h"

namespace trireme::bench {
namespace {

// Bytes of this process on transparent huge pages.
int64_t bytes_on_huge_pages() {
  const std::string text = base::read_file("/proc/self/smaps_rollup"), key = "AnonHugePages:";
  const size_t at = text.find(key);
  return at == std::string::npos ? 0 : 1024 * std::strtoll(text.c_str() + at + key.size(), nullptr, 10);
}

// Disks take memory on small pages a page at a time, so the rate there says nothing about the arena's.
TEST(OffloadRates, AreOfMemoryLikeTheArenas) {
  constexpr int64_t kArena = int64_t{64} << 20;
  const int64_t without = bytes_on_huge_pages();
  {
    const engine::MappedMemory arena(kArena);
    if (bytes_on_huge_pages() - without < kArena / 2) GTEST_SKIP() << "this system gives no huge pages";
  }
  const int64_t before = bytes_on_huge_pages();
  int64_t during = 0;
  engine::BlockIo::set_faults([&](bool, int64_t, int64_t) {  // the first block ends the measurement
    during = bytes_on_huge_pages();
    return engine::BlockIo::Fault{.code = EIO};
  });
  EXPECT_EQ(offload_rates(".", 8).both, 0);
  engine::BlockIo::set_faults({});
  EXPECT_GE(during - before, kArena);
}

}  // namespace
}  // namespace trireme::bench
