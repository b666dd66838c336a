// How a rank waits: first it spins, then it yields its core between looks, and after some time it sleeps.
// SharedSegment::has_core_for_each_rank tells at the start whether other ranks need the core. But groups overlap, and
// other programs run on the host. If a yield returns late, somebody needed the core, and the next waits do not spin.
#pragma once

#include <chrono>

namespace trireme::comm {

class Spinner {
 public:
  explicit Spinner(bool core_is_mine) : shares_core_(!core_is_mine) {}

  /// Call it when a new wait begins, or after progress.
  void reset() { looks_ = 0; }

  /// Spends a little time; false when it is time to sleep.
  bool pause();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLooks = 500;  // some 20 us
  static constexpr int kOffers = 100;  // timely yields before it spins again, once the core was needed
  static constexpr std::chrono::microseconds kLate{3}, kLongest{150};

  bool look_or_offer();
  bool offer();

  static constexpr int kTimedOffers = 8;  // if the core is always shared, only one yield in this many reads the clock

  bool shares_core_;
  int looks_ = 0;  // since the reset
  int offers_ = 0;  // timely yields to come before it spins again
  Clock::time_point start_;
};

}  // namespace trireme::comm
