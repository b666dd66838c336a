#include "trireme/bench/report.h"
#include "trireme/base/processor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trireme/base/files.h"
#include "trireme/base/version.h"
#include "trireme/bench/machine.h"

namespace trireme::bench {

const Limit* Report::limit_of(const Row& row) const {
  const auto found = std::find_if(limits.begin(), limits.end(), [&](const Limit& l) { return l.name == row.limit; });
  return row.limit.empty() || found == limits.end() ? nullptr : &*found;
}

double Report::limit_rate(const Row& row) const {
  const Limit* limit = limit_of(row);
  return limit == nullptr ? 0 : row.limit_beside > 0 ? row.limit_beside : limit->rate;
}

double Report::fraction(const Row& row) const {
  const double limit = limit_rate(row);
  return limit <= 0 ? 0 : row.rate / limit;
}

Report new_report(std::string kind, std::string command) {
  Report report;
  report.kind = std::move(kind);
  report.command = std::move(command);
  report.date = utc_now();
  report.machine = machine_name();
  report.processor = base::processor_name();
  report.cores = machine_cores();
  report.libtorch = libtorch_version();
  report.trireme = base::kVersion;
  return report;
}

double quantile(std::span<const double> values, double q) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - std::floor(place));
}

size_t median_step(std::span<const double> seconds) {
  std::vector<size_t> order(seconds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return seconds[i]; });
  return order[order.size() / 2];
}

namespace {

void set_times(Row& row, std::span<const double> seconds, double median, double amount) {
  row.median_seconds = median;
  row.best_seconds = quantile(seconds, 0);
  row.samples = std::ssize(seconds);
  if (row.median_seconds <= 0) return;
  row.spread = (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / row.median_seconds;
  row.rate = amount / row.median_seconds;
}

}  // namespace

void set_times(Row& row, std::span<const double> seconds, double amount) {
  set_times(row, seconds, quantile(seconds, 0.5), amount);
}

void set_step_times(Row& row, std::span<const double> seconds, double amount) {
  set_times(row, seconds, seconds.empty() ? 0 : seconds[median_step(seconds)], amount);
}

Report read_report(const std::filesystem::path& path) { return parse_report(base::read_file(path), path.string()); }

}  // namespace trireme::bench
