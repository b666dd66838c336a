#include "trireme/train/peak.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "trireme/ops/cuda_kernels.h"
#include "trireme/ops/limits.h"
#include "trireme/ops/products.h"
#include "trireme/train/core_time.h"

namespace trireme::train {

namespace {

double product_flops(at::ScalarType dtype, at::Device device, int64_t size = 8192) try {
  constexpr int kRuns = 10;
  const auto matrix = [&] { return at::randn({size, size}, at::TensorOptions().dtype(dtype).device(device)); };
  const at::Tensor a = matrix(), b = matrix(), c = at::empty_like(a);
  double best = 0;
  for (int run = 0; run <= kRuns; ++run) {  // the first one warms up
    ops::cuda_kernels().synchronize();
    const auto begin = std::chrono::steady_clock::now();
    ops::multiply(c, a, b.t());
    ops::cuda_kernels().synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (run > 0) best = std::max(best, 2.0 * double(size) * double(size) * double(size) / seconds);
  }
  return best;
} catch (const c10::OutOfMemoryError&) {  // the run has taken nearly all of it
  if (size <= 1024) throw;
  return product_flops(dtype, device, size / 2);
}

}  // namespace

std::string what_peak_is(at::ScalarType dtype, at::Device device) {
  return device.is_cuda() ? "what products of 8192 x 8192 matrices reach here"
                          : fmt::format("what multiply-adds on {} reach here", ops::register_loop_place(dtype));
}

double measure_peak_flops(at::ScalarType dtype, comm::Communicator& world, at::Device device) {
  const int threads = at::get_num_threads();
  const double time = device.is_cuda() ? 1 : core_time(world, threads);
  world.barrier()->wait();
  const double flops =
      device.is_cuda() ? product_flops(dtype, device) : time * ops::register_loop_flops(dtype, threads);
  const at::Tensor mine = at::full({1}, flops, at::kDouble);
  const at::Tensor sum = at::empty({1}, at::kDouble);
  world.all_reduce(sum, mine, {})->wait();
  return sum.item<double>();
}

}  // namespace trireme::train
