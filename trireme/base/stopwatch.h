// Wall time since a start, by the monotonic clock.
#pragma once

#include <chrono>

namespace trireme::base {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  /// Seconds since the start or the last lap; starts again.
  double lap() {
    const Clock::time_point now = Clock::now();
    const double passed = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return passed;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace trireme::base
