// Report: the result of a benchmark, as data. Each row has a measurement and the limit that was measured in the same
// run. It is shown as a table (table.cpp), stored as JSON, and compared with another report (compare.h).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::bench {

/// The best that the machine reaches when it does nothing else.
struct Limit {
  std::string name;  ///< "bf16 multiply-adds on registers, 1 thread", "copy, 2 threads"
  double rate = 0;
  std::string unit;  ///< of this rate and of the rows beside it
};

struct Row {
  std::string name;   ///< "qkv forward"; name and shape together are unique in a report
  std::string shape;  ///< sizes, dtype, ranks: whatever makes two rows comparable
  double median_seconds = 0, best_seconds = 0;
  double spread = 0;  ///< third minus first quartile, as a share of the median
  int64_t samples = 0;
  double rate = 0;  ///< at the median
  std::string unit = {};  ///< "GFLOP/s", "GB/s", "tokens/s"
  std::string limit = {};  ///< name of a limit of the report; empty: none applies
  double limit_beside = 0;  ///< median rate of that limit, measured between this row's samples; 0: not measured
  std::vector<std::pair<std::string, double>> values = {};  ///< further columns, unit in the name: "busbw GB/s"
};

struct Report {
  std::string kind;  ///< the subcommand: "gemm"
  std::string command = {};  ///< as it could be typed again
  std::string date = {};  ///< UTC, ISO 8601
  std::string machine = {}, processor = {};
  int64_t cores = 0;
  std::string libtorch = {}, trireme = {};
  std::vector<Limit> limits = {};
  std::vector<Row> rows = {};

  /// The limit of a row, or null.
  const Limit* limit_of(const Row& row) const;
  /// The rate that a row is compared with: its limit_beside, else the rate of its limit; 0 if it has none.
  double limit_rate(const Row& row) const;
  /// The share of its limit that a row reaches; 0 if it has none.
  double fraction(const Row& row) const;
};

/// A report of this machine, now, without rows.
Report new_report(std::string kind, std::string command);

/// Fills median, best, spread and samples from the seconds of single calls; the rate counts `amount` a call.
void set_times(Row& row, std::span<const double> seconds, double amount);
/// The same of training steps, whose median is that of median_step().
void set_step_times(Row& row, std::span<const double> seconds, double amount);

/// Quantile `q` in [0, 1] of values in any order, interpolated linearly; 0 if there are none.
double quantile(std::span<const double> values, double q);

/// The index of the step with the median time; of an even number of steps, the longer one of the two in the middle.
/// Parts of a step add up to its time, as no mean of two steps would say.
size_t median_step(std::span<const double> seconds);

/// Version 1 of the format; docs/benchmarks.md lists the keys.
std::string to_json(const Report& report);

/// Reads to_json's text, or what `trireme bench train` writes, which becomes a report of kind "train".
/// Errors    UsageError naming `source` and what is wrong with it
Report parse_report(std::string_view json, const std::string& source);

/// Errors    UsageError: a file that cannot be read, or as parse_report
Report read_report(const std::filesystem::path& path);

/// Heading, limits, and an aligned table of the rows; ends with a line end.
std::string table_text(const Report& report);

/// "4.81 ms", "950 ns": three digits.
std::string time_text(double seconds);
/// "223", "0.0412", "1,234": three digits at least.
std::string rate_text(double rate);

}  // namespace trireme::bench
