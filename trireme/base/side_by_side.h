// A loop whose rounds run on as many threads as there are cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>

#include "trireme/base/crew.h"

namespace trireme::base {

/// Runs work(0) to work(count - 1), each once, begun in this order. Throws the first exception of them.
template <class Work>
void side_by_side(std::size_t count, const Work& work) {
  const std::size_t threads = std::min<std::size_t>(count, std::max(1U, std::thread::hardware_concurrency()));
  std::atomic<std::size_t> next{0};
  Crew crew(threads, [&](std::size_t) {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  });
  crew.join();
}

}  // namespace trireme::base
