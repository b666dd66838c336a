#include "trireme/costs/operation_timer.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "trireme/base/meter.h"
#include "trireme/ops/cuda/kernels.h"

namespace trireme::costs {

void OperationTimer::start() {
  if (std::exchange(listens_, true)) return;
  before_ = ops::listen(this);
}

void OperationTimer::stop() {
  if (std::exchange(listens_, false)) ops::listen(before_);
}

bool OperationTimer::begins(const ops::Operation& operation) {
  current_ = &calls_[{operation.name, operation.dtype, operation.m, operation.n, operation.k}];
  current_->operation = operation;
  if (on_gpu_) {
    ops::cuda_kernels().mark();
    return true;
  }
  base::meter_fence();
  cpu_begun_ = base::thread_cpu_seconds();
  begun_ = std::chrono::steady_clock::now();
  return true;
}

void OperationTimer::ends() {
  if (on_gpu_) {
    ops::cuda_kernels().mark();
    marked_.push_back(current_);
    return;
  }
  base::meter_fence();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  lacking_ += std::max(0.0, seconds - (base::thread_cpu_seconds() - cpu_begun_));
  current_->seconds.push_back(static_cast<float>(seconds));
}

std::vector<TimedOperation> OperationTimer::operations() {
  if (on_gpu_) {
    const std::vector<double> seconds = ops::cuda_kernels().seconds_between_marks();
    for (size_t i = 0; i < marked_.size(); ++i) marked_[i]->seconds.push_back(static_cast<float>(seconds[2 * i]));
    marked_.clear();
  }
  std::vector<TimedOperation> all;
  for (const auto& [key, calls] : calls_) {
    std::vector<float> sorted = calls.seconds;
    std::ranges::sort(sorted);
    const auto kept = std::max<std::ptrdiff_t>(1, std::ssize(sorted) - (std::ssize(sorted) + 19) / 20);
    const double sum = std::accumulate(sorted.begin(), sorted.begin() + kept, 0.0);
    all.push_back({calls.operation, sum / double(kept), std::ssize(calls.seconds)});
  }
  std::ranges::sort(all, std::greater(), [](const TimedOperation& t) { return t.seconds * double(t.calls); });
  return all;
}

}  // namespace trireme::costs
