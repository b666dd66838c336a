#include "trireme/base/meter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

namespace trireme::base {
namespace {

using std::chrono::milliseconds;

double of(const ActivitySeconds& seconds, Activity activity) { return seconds[static_cast<int>(activity)]; }

TEST(Meter, InnerTimeIsNotTheOuters) {
  const ActivitySeconds before = activity_seconds();
  const auto start = std::chrono::steady_clock::now();
  {
    const Metered outer(Activity::elementwise);
    std::this_thread::sleep_for(milliseconds(5));
    {
      const Metered inner(Activity::products);
      std::this_thread::sleep_for(milliseconds(20));
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  std::this_thread::sleep_for(milliseconds(3));
  const ActivitySeconds after = activity_seconds();
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double inner = of(after, Activity::products) - of(before, Activity::products);
  const double outer = of(after, Activity::elementwise) - of(before, Activity::elementwise);
  const double rest = of(after, Activity::other) - of(before, Activity::other);
  EXPECT_GE(inner, 0.020);
  EXPECT_GE(outer, 0.010);
  EXPECT_GE(rest, 0.003);
  // Every moment is counted once: the three together are the whole, but for the reads of the clock around it.
  EXPECT_NEAR(inner + outer + rest, all, 0.001);
  EXPECT_EQ(of(after, Activity::data), of(before, Activity::data));
}

TEST(Meter, EachThreadHasItsOwn) {
  const ActivitySeconds before = activity_seconds();
  std::thread([] {
    const Metered metered(Activity::data);
    std::this_thread::sleep_for(milliseconds(5));
  }).join();
  EXPECT_EQ(of(activity_seconds(), Activity::data), of(before, Activity::data));
}

}  // namespace
}  // namespace trireme::base
