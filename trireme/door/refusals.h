// One line for each stranger who was turned away, and no flood of lines from one who knocks all day.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace trireme::door {

class Refusals {
 public:
  using Clock = std::chrono::steady_clock;
  using Say = std::function<void(const std::string&)>;
  explicit Refusals(Say say) : say_(std::move(say)) {}

  /// The first eight of every minute are told, the others counted.
  void tell(const std::string& line, Clock::time_point now = Clock::now());

 private:
  Say say_;
  Clock::time_point window_start_{};
  int told_ = 0;
  long untold_ = 0;
};

}  // namespace trireme::door
