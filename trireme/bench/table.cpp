// A report as a table for people.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/text.h"
#include "trireme/bench/report.h"

namespace trireme::bench {
namespace {

using Cells = std::vector<std::string>;

std::string percent(double share) { return fmt::format("{:.{}f} %", share * 100, std::abs(share) < 0.0995 ? 1 : 0); }

// Names of all further columns, in the order in which they first appear.
Cells further_columns(const Report& report) {
  Cells names;
  for (const Row& row : report.rows)
    for (const auto& [name, value] : row.values)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

std::string value_text(const Row& row, const std::string& name) {
  const auto found = std::find_if(row.values.begin(), row.values.end(), [&](const auto& v) { return v.first == name; });
  return found == row.values.end() ? "" : rate_text(found->second);
}

Cells cells_of(const Report& report, const Row& row, const Cells& further) {
  const Limit* limit = report.limit_of(row);
  Cells cells = {row.name,
                 row.shape,
                 time_text(row.median_seconds),
                 time_text(row.best_seconds),
                 percent(row.spread),
                 row.unit.empty() ? "" : fmt::format("{} {}", rate_text(row.rate), row.unit),
                 limit == nullptr ? "" : rate_text(report.limit_rate(row)),
                 limit == nullptr ? "" : percent(report.fraction(row))};
  for (const std::string& name : further) cells.push_back(value_text(row, name));
  return cells;
}

std::string line_of(const Cells& cells, const std::vector<size_t>& widths) {
  constexpr size_t kLeft = 2;  // names and shapes are left-aligned, numbers right-aligned
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i)
    line += i < kLeft ? fmt::format("{:<{}}  ", cells[i], widths[i]) : fmt::format("{:>{}}  ", cells[i], widths[i]);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string time_text(double seconds) {
  if (seconds <= 0) return "-";
  const struct {
    double unit;
    const char* name;
  } units[] = {{1e-9, "ns"}, {1e-6, "us"}, {1e-3, "ms"}, {1, "s"}};
  size_t i = 0;
  while (i < 3 && seconds / units[i].unit >= 999.5) ++i;
  const double value = seconds / units[i].unit;
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, units[i].name);
}

std::string rate_text(double rate) {
  if (rate == 0) return "0";
  if (std::abs(rate) >= 999.5) return base::human_count(std::llround(rate));
  const int digits = 2 - static_cast<int>(std::floor(std::log10(std::abs(rate))));
  return fmt::format("{:.{}f}", rate, std::clamp(digits, 0, 6));
}

std::string table_text(const Report& report) {
  std::string text = fmt::format("trireme {}  LibTorch {}  bench {}  {}, {}\n", report.trireme, report.libtorch,
                                 report.kind, report.processor, base::plural(report.cores, "core"));
  for (const Limit& l : report.limits) text += fmt::format("limit    {} {}: {}\n", rate_text(l.rate), l.unit, l.name);
  const Cells further = further_columns(report);
  Cells head = {"what", "size", "median", "best", "spread", "rate", "limit", "share"};
  head.insert(head.end(), further.begin(), further.end());
  std::vector<Cells> lines = {head};
  for (const Row& row : report.rows) lines.push_back(cells_of(report, row, further));
  std::vector<size_t> widths(head.size());
  for (const Cells& cells : lines)
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  text += "\n";
  for (const Cells& cells : lines) text += line_of(cells, widths);
  return text;
}

}  // namespace trireme::bench
