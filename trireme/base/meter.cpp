#include "trireme/base/meter.h"

#include <time.h>

#include <chrono>

namespace trireme::base {
namespace {

using Clock = std::chrono::steady_clock;

thread_local void (*fence)() = nullptr;

struct Meter {
  ActivitySeconds seconds{};
  Activity now = Activity::other;
  Clock::time_point since = Clock::now();

  Activity change(Activity activity) {
    meter_fence();
    const Clock::time_point time = Clock::now();
    seconds[static_cast<int>(now)] += std::chrono::duration<double>(time - since).count();
    since = time;
    const Activity before = now;
    now = activity;
    return before;
  }
};

thread_local Meter meter;

}  // namespace

ActivitySeconds activity_seconds() {
  meter.change(meter.now);
  return meter.seconds;
}

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

void set_meter_fence(void (*new_fence)()) { fence = new_fence; }

bool has_meter_fence() { return fence != nullptr; }

void meter_fence() {
  if (fence != nullptr) fence();
}

Metered::Metered(Activity activity) : outer_(meter.change(activity)) {}

Metered::~Metered() { meter.change(outer_); }

}  // namespace trireme::base
