#include "trireme/train/pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "../checkpoint/thread_ranks.h"
#include "trireme/launch/identity/start_time.h"
#include "trireme/train/start_phases.h"

namespace trireme::train {
namespace {

using checkpoint::run_ranks;

// Eight times as many threads as before measure about the same peak; added up as if each had a core, eight times it.
TEST(Pace, ThePeakOfRanksThatShareCoresIsThatOfTheCores) {
  const auto peak = [](int size) {
    double flops = 0;
    run_ranks(size, [&](comm::Communicator& world) {
      const double mine = measure_peak_flops(at::kFloat, world);
      if (world.rank() == 0) flops = mine;
    });
    return flops;
  };
  const double one = peak(1);
  EXPECT_LT(peak(8), 3 * one);
}

// The kernel tells the start of a process in hundredths of a second. A process of the next attempt may so seem to have
// begun before its attempt.
TEST(StartPhases, NoPhaseEndsBeforeItBegins) {
  const auto before_attempt = launch::process_start();
  setenv("TRIREME_STARTED_NS", launch::start_variable(before_attempt + std::chrono::milliseconds(6)).c_str(), 1);
  const StartPhases phases;
  unsetenv("TRIREME_STARTED_NS");
  EXPECT_THAT(phases.text(), testing::AllOf(testing::StartsWith("starting exec 0.000 s, load "),
                                            testing::Not(testing::HasSubstr("-"))));
}

}  // namespace
}  // namespace trireme::train
