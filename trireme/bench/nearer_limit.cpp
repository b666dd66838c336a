#include "trireme/bench/nearer_limit.h"

namespace trireme::bench {

NearerLimit::NearerLimit(at::ScalarType dtype, int threads, bool quick)
    : dtype_(dtype),
      budget_(Budget::of(quick)),
      memory_(threads, quick ? int64_t{8} << 20 : 0),
      registers_(dtype, threads) {}

void NearerLimit::time(Row& row, Limits& limits, double bytes, double flops, const std::function<void()>& step) {
  std::vector<double> reads, operations;
  const auto samples = time_calls(step, budget_, {}, [&] {
    reads.push_back(memory_.read());
    operations.push_back(registers_.flops());
  });
  const double read = quantile(reads, 0.5), arithmetic = quantile(operations, 0.5);
  const bool by_memory = bytes / read > flops / arithmetic;
  row.unit = by_memory ? "GB/s" : "GFLOP/s";
  row.limit = by_memory ? limits.read() : limits.arithmetic(dtype_);
  row.limit_beside = (by_memory ? read : arithmetic) * 1e-9;
  set_times(row, samples, (by_memory ? bytes : flops) * 1e-9);
}

}  // namespace trireme::bench
