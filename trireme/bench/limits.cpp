#include "trireme/bench/limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/text.h"
#include "trireme/machine/limits.h"

namespace trireme::bench {

std::string Limits::add(std::string name, std::string unit, std::function<double()> measure) {
  for (const Meter& m : meters_)
    if (m.limit.name == name) return name;
  const double rate = measure();
  meters_.push_back({{name, rate, std::move(unit)}, std::move(measure)});
  return name;
}

std::string Limits::arithmetic(at::ScalarType dtype) {
  return add(fmt::format("{} multiply-adds on {}, {}", dtype_name(dtype), machine::register_loop_place(dtype),
                         base::plural(threads_, "thread")),
             "GFLOP/s", [this, dtype] { return machine::register_loop_flops(dtype, threads_) * 1e-9; });
}

std::string Limits::name(std::string_view what, int64_t bytes) const {
  return fmt::format("{}, {}, {}", what, bytes == 0 ? "beyond the caches" : base::human_bytes(bytes),
                     base::plural(threads_, "thread"));
}

std::string Limits::copy(int64_t bytes) {
  return add(name("copy", bytes), "GB/s",
             [this, bytes] { return machine::measure_copy(threads_, bytes / 2 / threads_).best() * 1e-9; });
}

std::string Limits::update(int64_t bytes) {
  return add(name("update in place", bytes), "GB/s", [this, bytes] {
    const int64_t each = bytes / 2 / threads_;
    return std::max(machine::update_bandwidth(threads_, each), machine::measure_copy(threads_, each).best()) * 1e-9;
  });
}

std::string Limits::read(int64_t bytes) {
  return add(name("read", bytes), "GB/s",
             [this, bytes] { return machine::read_bandwidth(threads_, bytes / threads_) * 1e-9; });
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
