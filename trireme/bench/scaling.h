// What more ranks bring: tokens/s for each number of ranks, how far that is from the best it could be, and where the
// rest went. Pure functions over what `bench train` writes; bench_scaling (commands.h) runs it.
#pragma once

#include <cstdint>
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
  /// Seconds of a median step by cause on rank 0: key "parts" of the JSON, hidden communication left out, because
  /// it takes no time of its own.
  std::vector<std::pair<std::string, double>> parts;
};

/// Errors    UsageError naming the key that `json`, written to `source`, lacks
ScalingRun parse_scaling_run(std::string_view json, const std::string& source);

struct ScalingPoint {
  ScalingRun run;
  double tokens_per_second = 0;  ///< at the median
  double efficiency = 1;  ///< of (ranks / first's ranks) times the first run's tokens/s
  double core_efficiency = 1;  ///< the same, but only as far as there are cores for the threads
  /// Share of the cores' time that this run's threads lack because they are more than the cores: 1 - cores / threads.
  /// It shows in every cause below.
  double shared = 0;
  /// Share of this run's step that is longer than the first run's, by cause; a cause that became shorter is negative.
  std::vector<std::pair<std::string, double>> lost;
};

/// Weak scaling: every rank works on as many tokens as in the first run, so that time beyond the first's is lost.
std::vector<ScalingPoint> scaling_points(std::vector<ScalingRun> runs, int64_t cores);

/// Rows "step", one for each point, each beside what the cores allow, with efficiencies and losses as columns.
void add_rows(Report& report, const std::string& model, const std::vector<ScalingPoint>& points);

/// Bars: for each number of ranks the part of a step that the first run has too, and the loss by cause.
std::string scaling_svg(const std::string& title, const std::vector<ScalingPoint>& points);

}  // namespace trireme::bench
