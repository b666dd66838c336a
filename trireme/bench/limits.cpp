#include "trireme/bench/limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/text.h"
#include "trireme/ops/limits.h"

namespace trireme::bench {

std::string dtype_name(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bf16" : dtype == at::kDouble ? "fp64" : "fp32";
}

std::string Limits::add(std::string name, std::string unit, std::function<double()> measure) {
  for (const Meter& m : meters_)
    if (m.limit.name == name) return name;
  const double rate = measure();
  meters_.push_back({{name, rate, std::move(unit)}, std::move(measure)});
  return name;
}

std::string Limits::arithmetic(at::ScalarType dtype) {
  return add(fmt::format("{} multiply-adds on {}, {}", dtype_name(dtype), ops::register_loop_place(dtype),
                         base::plural(threads_, "thread")),
             "GFLOP/s", [this, dtype] { return ops::register_loop_flops(dtype, threads_) * 1e-9; });
}

std::string Limits::copy(int64_t bytes) {
  const std::string where = bytes == 0 ? "beyond the caches" : base::human_bytes(bytes);
  return add(fmt::format("copy, {}, {}", where, base::plural(threads_, "thread")), "GB/s",
             [this, bytes] { return ops::measure_copy(threads_, bytes / 2 / threads_).best() * 1e-9; });
}

std::string Limits::update(int64_t bytes) {
  const std::string where = bytes == 0 ? "beyond the caches" : base::human_bytes(bytes);
  return add(fmt::format("update in place, {}, {}", where, base::plural(threads_, "thread")), "GB/s", [this, bytes] {
    const int64_t each = bytes / 2 / threads_;
    return std::max(ops::update_bandwidth(threads_, each), ops::measure_copy(threads_, each).best()) * 1e-9;
  });
}

std::string Limits::read(int64_t bytes) {
  const std::string where = bytes == 0 ? "beyond the caches" : base::human_bytes(bytes);
  return add(fmt::format("read, {}, {}", where, base::plural(threads_, "thread")), "GB/s",
             [this, bytes] { return ops::read_bandwidth(threads_, bytes / threads_) * 1e-9; });
}

void Limits::again() {
  for (Meter& m : meters_) m.limit.rate = std::max(m.limit.rate, m.measure());
}

std::vector<Limit> Limits::all() const {
  std::vector<Limit> limits;
  for (const Meter& m : meters_) limits.push_back(m.limit);
  return limits;
}

}  // namespace trireme::bench
