#include "trireme/train/peak.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace trireme::train {

double measure_peak_flops(at::ScalarType dtype, comm::Communicator& world) {
  constexpr int64_t m = 1024, n = 2048, k = 1024;
  const auto options = at::TensorOptions().dtype(dtype);
  const at::Tensor a = at::full({m, k}, 0.5, options), b = at::full({n, k}, 0.25, options);
  at::Tensor c = at::empty({m, n}, options);
  at::mm_out(c, a, b.t());  // the first call compiles the kernel
  world.barrier()->wait();
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < 4; ++i) {
    const auto start = std::chrono::steady_clock::now();
    at::mm_out(c, a, b.t());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  const at::Tensor mine = at::full({1}, 2.0 * m * n * k / best, at::kDouble), sum = at::empty({1}, at::kDouble);
  world.all_reduce(sum, mine, {})->wait();
  return sum.item<double>();
}

}  // namespace trireme::train
