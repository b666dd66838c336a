// A thread's time by kind of activity, which `trireme bench train` prints as a table. A scope costs two reads of the
// clock. Every moment belongs to exactly one activity, so that the table's rows add up to the measured time.
#pragma once

#include <array>
#include <cstdint>

namespace trireme::base {

enum class Activity : uint8_t { products, attention, elementwise, communication, optimizer, data, offload, other };
constexpr int kNumActivities = 8;

struct ActivityName {
  Activity activity;
  const char* key;  ///< in JSON
  const char* name;  ///< in tables
};
/// In the order of Activity.
constexpr ActivityName kActivities[kNumActivities] = {{Activity::products, "products", "matrix products"},
                                                      {Activity::attention, "attention", "attention"},
                                                      {Activity::elementwise, "elementwise", "element-wise"},
                                                      {Activity::communication, "communication", "communication"},
                                                      {Activity::optimizer, "optimizer", "optimizer and norm"},
                                                      {Activity::data, "data", "data"},
                                                      {Activity::offload, "offload", "offload, waited for"},
                                                      {Activity::other, "other", "waits, between actions"}};

/// Seconds that this thread has spent on each activity since it first used this header, by index of Activity.
using ActivitySeconds = std::array<double, kNumActivities>;
ActivitySeconds activity_seconds();

/// Until the end of its scope this thread's time counts as `activity`, except inside an inner Metered.
class Metered {
 public:
  explicit Metered(Activity activity);
  ~Metered();
  Metered(const Metered&) = delete;
  Metered& operator=(const Metered&) = delete;

 private:
  Activity outer_;
};

/// From now on this thread calls `fence` before it reads the clock. On a GPU the fence waits until the launched work is
/// done, so that time counts for the activity that spends it. Null (the default): none.
void set_meter_fence(void (*fence)());
bool has_meter_fence();  ///< of this thread
/// Calls the fence, if there is one.
void meter_fence();

/// Seconds that the calling thread has run on a core. Cost      about 1 microsecond
double thread_cpu_seconds();

}  // namespace trireme::base
