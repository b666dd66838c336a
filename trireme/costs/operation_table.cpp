#include "trireme/costs/operation_table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trireme/base/text.h"

namespace trireme::costs {
namespace {

std::string sizes_of(const ops::Operation& o) {
  return o.k > 1 ? fmt::format("{} x {} x {}", o.m, o.n, o.k) : fmt::format("{} x {}", o.m, o.n);
}

std::string rate_of(const TimedOperation& t) {
  if (t.seconds <= 0) return "";
  return t.operation.flops > 0 ? fmt::format("{:.4g} GFLOP/s", 1e-9 * t.operation.flops / t.seconds)
                               : fmt::format("{:.4g} GB/s", 1e-9 * t.operation.bytes / t.seconds);
}

}  // namespace

std::string operations_text(const std::vector<TimedOperation>& operations, int64_t steps, double step, size_t shown) {
  std::string out = fmt::format("{:<22}{:<6}{:>24}{:>8}{:>13}{:>9}\n", "operation", "dtype", "m x n x k", "calls",
                                "ms a step", "share");
  double sum = 0, others = 0, other_calls = 0;
  for (size_t i = 0; i < operations.size(); ++i) {
    const TimedOperation& t = operations[i];
    const double calls = double(t.calls) / double(steps), seconds = t.seconds * calls;
    sum += seconds;
    if (i >= shown) {
      others += seconds;
      other_calls += calls;
      continue;
    }
    out += fmt::format("{:<22}{:<6}{:>24}{:>8.4g}{:>13.3f}{:>7.1f} %   {}\n", t.operation.name,
                       dtype_name(t.operation.dtype), sizes_of(t.operation), calls, 1e3 * seconds, 100 * seconds / step,
                       rate_of(t));
  }
  if (other_calls > 0)
    out += fmt::format("{:<52}{:>8.4g}{:>13.3f}{:>7.1f} %\n", "other shapes", other_calls, 1e3 * others,
                       100 * others / step);
  return out + fmt::format("{:<60}{:>13.3f}{:>7.1f} %   of a step of {:.3f} ms\n", "all operations", 1e3 * sum,
                           100 * sum / step, 1e3 * step);
}

nlohmann::ordered_json operations_json(const std::vector<TimedOperation>& operations, int64_t steps) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const TimedOperation& t : operations)
    all.push_back({{"name", t.operation.name},
                   {"dtype", dtype_name(t.operation.dtype)},
                   {"m", t.operation.m},
                   {"n", t.operation.n},
                   {"k", t.operation.k},
                   {"seconds", t.seconds},
                   {"calls_a_step", double(t.calls) / double(steps)}});
  return all;
}

}  // namespace trireme::costs
