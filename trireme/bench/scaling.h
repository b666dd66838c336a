// Scaling with the number of ranks: tokens/s for each number, the distance from ideal scaling, and the losses by cause.
// Pure functions over what `bench train` writes; bench_scaling (commands.h) runs them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/bench/report.h"

namespace trireme::bench {

/// One run of `bench train`.
struct ScalingRun {
  int64_t ranks = 1, threads_per_rank = 1;
  std::vector<double> step_seconds;
  int64_t tokens_per_step = 0;
  /// Seconds of rank 0's median step by cause: key "parts" of the JSON. Hidden communication is left out, because it
  /// takes no time of its own.
  std::vector<std::pair<std::string, double>> parts;
  std::optional<double> predicted;  ///< seconds of a step, with --predict
};

/// Reads `json`, the text of the file `source`. Errors    UsageError naming a missing key
ScalingRun parse_scaling_run(std::string_view json, const std::string& source);

struct ScalingPoint {
  ScalingRun run;
  double tokens_per_second = 0;  ///< at the median
  double efficiency = 1;  ///< tokens/s as a share of (ranks / first run's ranks) x first run's tokens/s
  double core_efficiency = 1;  ///< the same, with the cores that the threads use in place of ranks
  /// If this run has more threads than cores, the share of the cores that it lacks: 1 - cores / threads. Every cause
  /// below includes it.
  double shared = 0;
  /// For each cause, how much more time it takes than in the first run, as a share of this run's step; negative: less.
  std::vector<std::pair<std::string, double>> lost;
};

/// Weak scaling: every rank has as many tokens as in the first run, so any additional time is a loss.
std::vector<ScalingPoint> scaling_points(std::vector<ScalingRun> runs, int64_t cores);

/// Adds a row "step" for each point, with efficiencies and losses as columns; its limit is what the cores allow.
void add_rows(Report& report, const std::string& model, const std::vector<ScalingPoint>& points);

/// A bar for each number of ranks: the time that the first run takes too, and the losses by cause.
std::string scaling_svg(const std::string& title, const std::vector<ScalingPoint>& points);

}  // namespace trireme::bench
