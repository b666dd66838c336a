// The collectives that `trireme bench collectives` times: how to call each, what it must give, what it must move.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::bench {

enum class Buffers {
  own,     ///< private to each rank: data are copied to shared memory first
  shared,  ///< peers read them directly
};

/// A call over `bytes` of float32, counted as in nccl-tests: the larger of input and output.
struct CollectiveCall {
  std::function<void()> run;           ///< starts it and waits
  std::function<bool()> is_right;      ///< whether the first run() gave the right result
};

struct CollectiveCase {
  const char* name;
  Buffers buffers;
  /// busbw = algbw * bus_factor(N), algbw = bytes / time: what each rank's link carries if it is used both ways.
  double (*bus_factor)(double ranks);
  /// The fewest bytes that a rank must read plus write in shared memory, as a multiple of `bytes`.
  double (*moved)(double ranks);
  CollectiveCall (*make)(const comm::CommunicatorPtr& comm, int64_t bytes);
};

/// Source of the factors: nccl-tests, doc/PERFORMANCE.md.
std::span<const CollectiveCase> collective_cases();

}  // namespace trireme::bench
