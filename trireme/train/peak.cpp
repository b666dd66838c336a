#include "trireme/train/peak.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trireme/ops/limits.h"
#include "trireme/train/core_time.h"

namespace trireme::train {

double measure_peak_flops(at::ScalarType dtype, comm::Communicator& world) {
  const int threads = at::get_num_threads();
  const double time = core_time(world, threads);
  world.barrier()->wait();
  const at::Tensor mine = at::full({1}, time * ops::register_loop_flops(dtype, threads), at::kDouble);
  const at::Tensor sum = at::empty({1}, at::kDouble);
  world.all_reduce(sum, mine, {})->wait();
  return sum.item<double>();
}

}  // namespace trireme::train
