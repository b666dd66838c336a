#include "trireme/train/pace.h"

#include <gtest/gtest.h>

#include "../checkpoint/thread_ranks.h"

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

}  // namespace
}  // namespace trireme::train
