#include "trireme/bench/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"

namespace trireme::bench {
namespace {

constexpr const char* kHidden = "communication_hidden";

double part_of(const ScalingRun& run, const std::string& cause) {
  const auto found = std::find_if(run.parts.begin(), run.parts.end(), [&](const auto& p) { return p.first == cause; });
  return found == run.parts.end() ? 0 : found->second;
}

double median_seconds(const ScalingRun& run) { return run.step_seconds[median_step(run.step_seconds)]; }

double tokens_per_second(const ScalingRun& run) {
  return static_cast<double>(run.tokens_per_step) / median_seconds(run);
}

std::vector<std::pair<std::string, double>> losses(const ScalingRun& first, const ScalingRun& run) {
  const double step = median_seconds(run);
  std::vector<std::pair<std::string, double>> lost;
  for (const auto& [cause, seconds] : run.parts) lost.emplace_back(cause, (seconds - part_of(first, cause)) / step);
  return lost;
}

std::string limit_name(const ScalingPoint& p) {
  return fmt::format("{}, as far as cores go, times the first run's", base::plural(p.run.ranks, "rank"));
}

}  // namespace

ScalingRun parse_scaling_run(std::string_view text, const std::string& source) try {
  const auto j = base::parse_json<nlohmann::ordered_json>(text);
  for (const char* key : {"ranks", "step_seconds", "tokens_per_step", "parts"})
    if (!j.contains(key))
      throw UsageError(fmt::format(
          "{} has no key \"{}\", which scaling reads; was it written by another version of trireme bench train?",
          source, key));
  ScalingRun run;
  run.ranks = base::whole_number(j.at("ranks"));
  run.step_seconds = j.at("step_seconds").get<std::vector<double>>();
  if (run.step_seconds.empty()) throw UsageError(fmt::format("{} has no steps; bench.steps is at least 1", source));
  run.tokens_per_step = base::whole_number(j.at("tokens_per_step"));
  for (const auto& [cause, seconds] : j.at("parts").items())
    if (cause != kHidden) run.parts.emplace_back(cause, seconds.get<double>());
  if (j.contains("prediction")) run.predicted = j.at("prediction").at("predicted_seconds").at("step").get<double>();
  return run;
} catch (const nlohmann::json::exception& e) {
  throw UsageError(fmt::format("{} is no result of bench train: {}", source, base::json_reason(e)));
}

std::vector<ScalingPoint> scaling_points(std::vector<ScalingRun> runs, int64_t cores) {
  std::vector<ScalingPoint> points;
  const auto busy_cores = [cores](const ScalingRun& r) { return std::min(r.ranks * r.threads_per_rank, cores); };
  for (const ScalingRun& run : runs) {
    const ScalingRun& first = runs.front();
    ScalingPoint p{.run = run, .tokens_per_second = tokens_per_second(run)};
    const double times = p.tokens_per_second / tokens_per_second(first);
    p.efficiency = times * static_cast<double>(first.ranks) / static_cast<double>(run.ranks);
    p.core_efficiency = times * static_cast<double>(busy_cores(first)) / static_cast<double>(busy_cores(run));
    p.shared = 1 - static_cast<double>(busy_cores(run)) / static_cast<double>(run.ranks * run.threads_per_rank);
    p.lost = losses(first, run);
    points.push_back(std::move(p));
  }
  return points;
}

void add_rows(Report& report, const std::string& model, const std::vector<ScalingPoint>& points) {
  for (const ScalingPoint& p : points) {
    Row row{.name = "step",
            .shape = fmt::format("{}, {} x {}", model, base::plural(p.run.ranks, "rank"),
                                 base::plural(p.run.threads_per_rank, "thread")),
            .unit = "tokens/s",
            .limit = limit_name(p)};
    set_step_times(row, p.run.step_seconds, static_cast<double>(p.run.tokens_per_step));
    row.values.emplace_back("efficiency %", p.efficiency * 100);
    if (p.run.predicted) row.values.emplace_back("predicted ms", *p.run.predicted * 1e3);
    row.values.emplace_back("cores lacking %", p.shared * 100);
    for (const auto& [cause, share] : p.lost) row.values.emplace_back(fmt::format("lost to {} %", cause), share * 100);
    report.limits.push_back({row.limit, p.tokens_per_second / p.core_efficiency, "tokens/s"});
    report.rows.push_back(std::move(row));
  }
}

}  // namespace trireme::bench
