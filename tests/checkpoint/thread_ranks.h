// Runs a function on ranks that are threads of the test.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "trireme/comm/factory.h"

namespace trireme::checkpoint {

/// Calls `body(world)` on `size` thread ranks; an exception that leaves a body ends the test program.
inline void run_ranks(int size, const std::function<void(comm::Communicator&)>& body) {
  const auto segment = comm::make_thread_segment(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      comm::GroupOptions options;
      options.backend = "threads";
      options.rank = rank;
      options.size = size;
      options.thread_segment = segment;
      options.timeout = std::chrono::seconds(60);
      const comm::CommunicatorPtr world = comm::make_communicator(options);
      body(*world);
    });
  }
}

}  // namespace trireme::checkpoint
