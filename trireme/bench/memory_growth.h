// How far a process's own memory grows while something goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace trireme::bench {

/// Watches from a thread, every 2 ms, from its construction to growth(). Files and shared memory do not count.
class MemoryGrowth {
 public:
  MemoryGrowth();
  /// Most bytes above those at the start.
  int64_t growth();

 private:
  int64_t before_;
  std::atomic<int64_t> most_;
  std::jthread thread_;
};

}  // namespace trireme::bench
