// The limit of a step of generation: reading weights and cache, or multiply-adds, whichever takes longer.
#pragma once

#include <c10/core/ScalarType.h>

#include <functional>
#include <vector>

#include "trireme/bench/limits.h"
#include "trireme/bench/measure.h"
#include "trireme/bench/report.h"
#include "trireme/machine/limits.h"

namespace trireme::bench {

/// Times steps, and both limits between their samples, so that other work on the machine slows all three.
class NearerLimit {
 public:
  /// `quick`: the memory's passes read 8 MiB, which caches hold.
  NearerLimit(at::ScalarType dtype, int threads, bool quick);

  /// Sets the row's times, its unit, and the limit that is nearer to a step that reads `bytes` and does `flops`
  /// operations. Cost: the budget, and a pass of each limit after every sample.
  void time(Row& row, Limits& limits, double bytes, double flops, const std::function<void()>& step);

 private:
  at::ScalarType dtype_;
  Budget budget_;
  machine::MemoryPasses memory_;
  machine::RegisterPasses registers_;
};

}  // namespace trireme::bench
