#include "trireme/train/pace.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/machine/limits.h"
#include "trireme/machine/nvml.h"
#include "trireme/observe/core_time.h"
#include "trireme/observe/peak.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/products/products.h"

namespace trireme::train {
namespace {

constexpr double kMemoryInterval = 1;  // seconds

double product_flops(at::ScalarType dtype, at::Device device, int64_t size = 8192) try {
  constexpr int kRuns = 10;
  const auto matrix = [&] { return at::randn({size, size}, at::TensorOptions().dtype(dtype).device(device)); };
  const at::Tensor a = matrix(), b = matrix(), c = at::empty_like(a);
  double best = 0;
  for (int run = 0; run <= kRuns; ++run) {  // the first one warms up
    ops::cuda_kernels().synchronize();
    const base::Stopwatch watch;
    ops::multiply(c, a, b.t());
    ops::cuda_kernels().synchronize();
    if (run > 0) best = std::max(best, 2.0 * std::pow(double(size), 3) / watch.seconds());
  }
  return best;
} catch (const c10::OutOfMemoryError&) {  // the run has taken nearly all of it
  if (size <= 1024) throw;
  return product_flops(dtype, device, size / 2);
}

}  // namespace

std::string what_peak_is(at::ScalarType dtype, at::Device device) {
  return device.is_cuda() ? "what products of 8192 x 8192 matrices reach here"
                          : fmt::format("what multiply-adds on {} reach here", machine::register_loop_place(dtype));
}

double measure_peak_flops(at::ScalarType dtype, comm::Communicator& world, at::Device device) {
  const int threads = at::get_num_threads();
  const double time = device.is_cuda() ? 1 : observe::core_time(world, threads);
  world.barrier()->wait();
  const double flops =
      device.is_cuda() ? product_flops(dtype, device) : time * machine::register_loop_flops(dtype, threads);
  const at::Tensor mine = at::full({1}, flops, at::kDouble);
  const at::Tensor sum = at::empty({1}, at::kDouble);
  world.all_reduce(sum, mine, {})->wait();
  return sum.item<double>();
}

Pace::Pace(Session& session)
    : s_(session),
      peak_flops_(measure_peak_flops(session.precision.compute, session.world(), session.device)),
      flops_per_token_(session.flops_per_token()) {
  if (session.device.is_cuda() && session.is_first_rank()) gpu_ = ops::cuda_kernels().device_bus_id();
}

void Pace::took(double seconds, int64_t tokens, double seconds_to_limit, base::StepEvent& event) {
  if (s_.loss_scale) event.loss_scale = s_.loss_scale->scale(), event.skipped = s_.loss_scale->skipped();
  // The first step warms up, so the means begin anew with the second.
  const double old = ++steps_ <= 2 ? 0 : 0.9;
  smoothed_seconds_ = old * smoothed_seconds_ + (1 - old) * seconds;
  smoothed_tokens_ = old * smoothed_tokens_ + (1 - old) * double(tokens);
  event.step_seconds = seconds;
  event.tokens_per_second = smoothed_tokens_ / smoothed_seconds_;
  event.peak_fraction = observe::peak_fraction(event.tokens_per_second, flops_per_token_, peak_flops_);
  const double by_steps = event.max_steps > 0 ? double(event.max_steps - event.step) * smoothed_seconds_ : std::nan("");
  event.eta_seconds = std::fmin(by_steps, seconds_to_limit);  // of a number and NaN, the number
  if (!s_.is_first_rank()) return;
  if (!memory_ || memory_age_.seconds() > kMemoryInterval)
    memory_ = observe::read_memory_usage(), memory_age_ = base::Stopwatch();
  if (memory_) event.rss_bytes = memory_->rss_bytes(), event.shared_bytes = memory_->shared_bytes;
  if (gpu_.empty()) return;
  if (const auto gpu = machine::read_gpu(gpu_)) {
    event.measures.push_back({"gpu_bytes", double(gpu->memory_used)});
    event.measures.push_back({"gpu_watts", gpu->watts});
    event.measures.push_back({"gpu_megahertz", double(gpu->megahertz)});
    event.measures.push_back({"gpu_celsius", double(gpu->celsius)});
  }
}

std::string Pace::peak_line() const {
  return fmt::format("peak     {:.0f} GFLOP/s, {}", peak_flops_ / 1e9, what_peak_is(s_.precision.compute, s_.device));
}

}  // namespace trireme::train
