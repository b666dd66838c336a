#include "trireme/bench/memory_growth.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

#include "trireme/base/log.h"

namespace trireme::bench {
namespace {

/// Anonymous resident bytes of this process.
int64_t own_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) << 10;
  return 0;
}

}  // namespace

MemoryGrowth::MemoryGrowth() : before_(own_bytes()), most_(before_) {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    try {
      while (!stop.stop_requested()) {
        most_ = std::max(most_.load(), own_bytes());
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    } catch (const std::exception& error) {
      base::warn("the growth of memory is not watched any more: {}", error.what());
    }
  });
}

int64_t MemoryGrowth::growth() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  return std::max(most_.load(), own_bytes()) - before_;
}

}  // namespace trireme::bench
