// One line for each refused stranger, with a limit, so that a stranger who tries again and again cannot flood the log.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <string>

namespace trireme::store {

class Refusals {
 public:
  using Clock = std::chrono::steady_clock;
  using Say = std::function<void(const std::string&)>;
  explicit Refusals(Say say) : say_(std::move(say)) {}

  /// The first eight of every minute are printed, the others are counted.
  void tell(const std::string& line, Clock::time_point now = Clock::now()) {
    constexpr int kMostLines = 8;
    if (now - window_start_ > std::chrono::minutes(1)) {
      window_start_ = now;
      told_ = 0;
    }
    if (told_ == kMostLines) {
      ++untold_;
      return;
    }
    ++told_;
    say_(untold_ == 0 ? line : fmt::format("{} ({} others were refused before)", line, untold_));
    untold_ = 0;
  }

 private:
  Say say_;
  Clock::time_point window_start_{};
  int told_ = 0;
  long untold_ = 0;
};

}  // namespace trireme::store
