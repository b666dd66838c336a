// Pace: the speed of a run: seconds a step, tokens a second, the share of the machine's peak, the time to the end. All
// ranks measure the peak together when a run starts. It is the rate of a processor's multiply-adds on registers alone,
// or of one large matrix product on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/progress.h"
#include "trireme/base/stopwatch.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/train/session.h"

namespace trireme::train {

/// FLOP/s of all ranks together in `dtype` (machine::register_loop_flops, with LibTorch's number of threads). Ranks
/// that share cores count only for their share of the time (observe/core_time.h). On GPUs: of the product of two random
/// matrices of 8192 x 8192, the best of 10; smaller matrices if the GPU has no room left. Cost      about 0.04 s, on a
/// GPU 0.2 s and 400 MB of its memory; every rank of `world` must call
double measure_peak_flops(at::ScalarType dtype, comm::Communicator& world, at::Device device = at::kCPU);

/// What measure_peak_flops() measures on such a device, in words: "what multiply-adds on registers reach here".
std::string what_peak_is(at::ScalarType dtype, at::Device device);

class Pace {
 public:
  /// Measures the peak. Every rank must call.
  explicit Pace(Session& session);

  /// Call it after a step: fills in times, rates, rank 0's memory (read once a second), its GPU's measures and the loss
  /// scale. `event` already has step and max_steps. `seconds_to_limit`: until train.max_time; NaN without.
  void took(double seconds, int64_t tokens, double seconds_to_limit, base::StepEvent& event);

  double peak_flops() const { return peak_flops_; }  ///< of all ranks

  /// Smoothed; 0 until a step has ended.
  double seconds_a_step() const { return smoothed_seconds_; }

  /// "peak     94 GFLOP/s, what multiply-adds on registers reach here"
  std::string peak_line() const;

 private:
  const Session& s_;
  double peak_flops_, flops_per_token_;
  double smoothed_seconds_ = 0, smoothed_tokens_ = 0;
  int64_t steps_ = 0;  ///< since the start
  std::optional<observe::MemoryUsage> memory_ = {};
  base::Stopwatch memory_age_;
  std::string gpu_;  ///< the first rank's, as its driver names it; empty without one
};

}  // namespace trireme::train
