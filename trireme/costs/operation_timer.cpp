#include "trireme/costs/operation_timer.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "trireme/base/meter.h"

namespace trireme::costs {

bool OperationTimer::begins(const ops::Operation& operation) {
  current_ = &calls_[{operation.name, operation.dtype, operation.m, operation.n, operation.k}];
  current_->operation = operation;
  base::meter_fence();
  begun_ = std::chrono::steady_clock::now();
  return true;
}

void OperationTimer::ends() {
  base::meter_fence();
  current_->seconds.push_back(std::chrono::duration<float>(std::chrono::steady_clock::now() - begun_).count());
}

std::vector<TimedOperation> OperationTimer::operations() const {
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
