// The collectives that `trireme bench collectives` times. For each: how to call it, how to check its result, and the
// fewest bytes that it can move.
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

/// A call over `bytes` of float32. As in nccl-tests, `bytes` is the size of the larger of input and output.
struct CollectiveCall {
  std::function<void()> run;           ///< starts it and waits
  std::function<bool()> is_right;      ///< whether the first run() gave the right result
};

struct CollectiveCase {
  const char* name;
  Buffers buffers;
  /// algbw = bytes / time, and busbw = algbw * bus_factor(N) for N ranks. busbw is the rate at which each rank's link
  /// sends, if it also receives at this rate.
  double (*bus_factor)(double ranks);
  /// The fewest bytes that a rank must read plus write in shared memory, as a multiple of `bytes`.
  double (*moved)(double ranks);
  CollectiveCall (*make)(const comm::CommunicatorPtr& comm, int64_t bytes);
};

/// Source of the factors: nccl-tests, doc/PERFORMANCE.md.
std::span<const CollectiveCase> collective_cases();

}  // namespace trireme::bench
