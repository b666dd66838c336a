#include "trireme/engine/arena.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace trireme::engine {
namespace {

std::mutex mutex;
std::set<std::thread::id> copiers;

void copy_and_tell(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
  const std::lock_guard lock(mutex);
  copiers.insert(std::this_thread::get_id());
}

TEST(CopyState, AllThreadsOfTheRankCopyAndEveryByteArrives) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  std::vector<char> from(static_cast<size_t>(24 << 20) + 7), to(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 31 + i / 4096);
  copy_on_all_threads(to.data(), from.data(), static_cast<int64_t>(from.size()), copy_and_tell);
  EXPECT_EQ(copiers.size(), 3u);
  EXPECT_TRUE(from == to);
  std::fill(to.begin(), to.end(), 0);
  copy_on_all_threads(to.data(), from.data(), static_cast<int64_t>(from.size()));
  EXPECT_TRUE(from == to);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace trireme::engine
