// How a rank passes a wait before it sleeps: first it looks again and again, then it offers its core to others
// between looks, and after some time it is told to sleep. Whether others need the core is not only asked at the start
// (SharedSegment::has_core_for_each_rank): groups overlap, and whatever else runs on the host counts as well. A core
// that was offered and came back late was needed, and for some time after that the first part is left out.
#pragma once

#include <chrono>

namespace trireme::comm {

class Spinner {
 public:
  explicit Spinner(bool core_is_mine) : shares_core_(!core_is_mine) {}

  /// A new wait begins, or something has moved.
  void reset() { looks_ = 0; }

  /// Passes a little time; false when it is time to sleep.
  bool pause();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLooks = 500;   // some 20 us
  static constexpr int kOffers = 100;  // waits that begin with an offer after the core was needed
  static constexpr std::chrono::microseconds kLate{3}, kLongest{150};

  bool look_or_offer();
  bool offer();

  static constexpr int kTimedOffers = 8;  // where the core is shared for good, only every so many look at the clock

  bool shares_core_;
  int looks_ = 0;   // since the reset
  int offers_ = 0;  // offers to come that are made without looking around first
  Clock::time_point start_;
};

}  // namespace trireme::comm
