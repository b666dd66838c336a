#include "trireme/bench/collective_timing.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/base/stopwatch.h"
#include "trireme/machine/limits.h"
#include "trireme/observe/core_time.h"

namespace trireme::bench {
namespace {

std::vector<double> slowest(comm::Communicator& comm, const std::vector<double>& seconds) {
  const at::Tensor mine = at::tensor(seconds, at::kDouble), most = at::empty_like(mine);
  comm.all_reduce(most, mine, {.op = comm::ReduceOp::max})->wait();
  return {most.data_ptr<double>(), most.data_ptr<double>() + most.numel()};
}

}  // namespace

std::vector<double> time_together(comm::Communicator& comm, const std::function<void()>& call, const Budget& budget) {
  constexpr double kWorthTiming = 50e-6;
  call();
  comm.barrier()->wait();
  base::Stopwatch watch;
  for (int i = 0; i < 3; ++i) call();
  const double once = std::max(slowest(comm, {watch.lap() / 3})[0], 1e-9);
  const auto inner = std::max<int64_t>(1, static_cast<int64_t>(kWorthTiming / once));
  const int64_t samples = std::clamp<int64_t>(
      static_cast<int64_t>(budget.seconds / (once * static_cast<double>(inner))), budget.least, 200);
  std::vector<double> seconds;
  for (int64_t s = 0; s < samples; ++s) {
    comm.barrier()->wait();
    watch.lap();
    for (int64_t i = 0; i < inner; ++i) call();
    seconds.push_back(watch.lap() / static_cast<double>(inner));
  }
  return slowest(comm, seconds);
}

double copy_together(comm::Communicator& comm, int64_t bytes) {
  const double time = observe::core_time(comm, 1);
  comm.barrier()->wait();
  const double own = time * machine::measure_copy(1, bytes).best();
  const at::Tensor mine = at::full({1}, own, at::kDouble), sum = at::empty({1}, at::kDouble);
  comm.all_reduce(sum, mine, {})->wait();
  return sum.item<double>() / comm.size();
}

}  // namespace trireme::bench
