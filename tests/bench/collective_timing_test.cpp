#include "trireme/bench/collective_timing.h"

#include <gtest/gtest.h>

#include <thread>

#include "trireme/bench/machine.h"
#include "trireme/comm/factory.h"

namespace trireme::bench {
namespace {

double copies_of(int size) {
  const auto segment = comm::make_thread_segment(size);
  double rate = 0;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      comm::GroupOptions options;
      options.backend = "threads";
      options.rank = rank;
      options.size = size;
      options.thread_segment = segment;
      options.timeout = std::chrono::seconds(60);
      const double mine = copy_together(*comm::make_communicator(options), 1 << 16);
      if (rank == 0) rate = mine;
    });
  threads.clear();  // joins
  return rate;
}

// Eight ranks to a core have an eighth of its copies each; a window of a millisecond would show each of them a whole.
TEST(CollectiveTiming, RanksThatShareACoreShareItsCopies) {
  EXPECT_LT(copies_of(8 * static_cast<int>(usable_cores())), 0.4 * copies_of(1));
}

}  // namespace
}  // namespace trireme::bench
