#include "trireme/bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "trireme/base/log.h"
#include "trireme/base/stopwatch.h"
#include "trireme/base/text.h"

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

std::vector<double> time_calls(const std::function<void()>& call, const Budget& budget,
                               const std::function<void()>& prepare, const std::function<void()>& beside) {
  constexpr double kWorthTiming = 20e-6;
  if (prepare) prepare();
  base::Stopwatch watch;
  call();
  double once = std::max(watch.lap(), 1e-9);
  if (once < budget.seconds / 10) {  // the first call may have been slow because it was the first
    if (prepare) prepare();
    watch.lap();
    call();
    once = std::max(watch.lap(), 1e-9);
  }
  const int64_t inner = prepare ? 1 : std::max<int64_t>(1, static_cast<int64_t>(kWorthTiming / once));
  std::vector<double> seconds;
  const base::Stopwatch all;
  const int64_t least = once > budget.seconds ? std::min<int64_t>(budget.least, 3) : budget.least;
  while (std::ssize(seconds) < least || (all.seconds() < budget.seconds && std::ssize(seconds) < budget.most)) {
    if (prepare) prepare();
    watch.lap();
    for (int64_t i = 0; i < inner; ++i) call();
    seconds.push_back(watch.lap() / static_cast<double>(inner));
    if (beside) beside();
  }
  return seconds;
}

void Progress::step(int64_t done, int64_t total, const std::string& name) {
  if (shown_ && line_.is_due())
    line_.show(
        fmt::format("{}  {}/{}  {}  {}", what_, done, total, name, base::human_duration(line_.seconds_so_far())));
}

MemoryGrowth::MemoryGrowth() : before_(own_bytes()), most_(before_) {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    try {
      while (!stop.stop_requested()) {
        most_ = std::max(most_.load(), own_bytes());
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    } catch (const std::exception& error) {
      base::warn("the growth of memory is no longer measured: {}", error.what());
    }
  });
}

int64_t MemoryGrowth::growth() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  return std::max(most_.load(), own_bytes()) - before_;
}

}  // namespace trireme::bench
