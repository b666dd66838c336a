// Where a thread's time goes, by kind of activity: what `trireme bench train` prints as a table. A scope costs two
// reads of the clock. Every moment belongs to exactly one activity, so that the table's rows add up to the time
// measured.
#pragma once

#include <array>
#include <cstdint>

namespace trireme::base {

enum class Activity : uint8_t { products, attention, elementwise, communication, optimizer, data, other };
constexpr int kNumActivities = 7;

/// Seconds this thread has spent on each activity since its first call of anything here, by index of Activity.
using ActivitySeconds = std::array<double, kNumActivities>;
ActivitySeconds activity_seconds();

/// Until the end of the scope this thread's time is `activity`'s; that of inner scopes is theirs alone.
class Metered {
 public:
  explicit Metered(Activity activity);
  ~Metered();
  Metered(const Metered&) = delete;
  Metered& operator=(const Metered&) = delete;

 private:
  Activity outer_;
};

/// From now on this thread calls `fence` before it reads the clock: on a GPU one that waits until the work issued is
/// done, so that time is counted where it is spent. Null: none, as at first.
void set_meter_fence(void (*fence)());
/// Calls it.
void meter_fence();

}  // namespace trireme::base
