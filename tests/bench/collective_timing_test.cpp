#include "trireme/bench/collective_timing.h"

#include <gtest/gtest.h>

#include "../checkpoint/thread_ranks.h"
#include "trireme/bench/machine.h"

namespace trireme::bench {
namespace {

double copies_of(int size) {
  double rate = 0;
  checkpoint::run_ranks(size, [&](comm::Communicator& world) {
    const double mine = copy_together(world, 1 << 16);
    if (world.rank() == 0) rate = mine;
  });
  return rate;
}

// Eight ranks to a core have an eighth of its copies each; a window of a millisecond would show each of them a whole.
TEST(CollectiveTiming, RanksThatShareACoreShareItsCopies) {
  EXPECT_LT(copies_of(8 * static_cast<int>(usable_cores())), 0.4 * copies_of(1));
}

}  // namespace
}  // namespace trireme::bench
