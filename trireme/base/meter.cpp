#include "trireme/base/meter.h"

#include <chrono>

namespace trireme::base {
namespace {

using Clock = std::chrono::steady_clock;

struct Meter {
  ActivitySeconds seconds{};
  Activity now = Activity::other;
  Clock::time_point since = Clock::now();

  Activity change(Activity activity) {
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

Metered::Metered(Activity activity) : outer_(meter.change(activity)) {}

Metered::~Metered() { meter.change(outer_); }

}  // namespace trireme::base
