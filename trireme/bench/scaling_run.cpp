// `trireme bench scaling`: runs bench train as a child process, once for each number of ranks.
#include <fmt/format.h>

#include <filesystem>

#include "trireme/base/files.h"
#include "trireme/base/named_file.h"
#include "trireme/base/text.h"
#include "trireme/bench/child.h"
#include "trireme/bench/commands.h"
#include "trireme/bench/machine.h"
#include "trireme/bench/measure.h"
#include "trireme/bench/scaling.h"

namespace trireme::bench {
namespace {
namespace fs = std::filesystem;

ScalingRun run_train(const Settings& settings, const fs::path& given, int64_t ranks) {
  const fs::path folder = fs::path(settings.out_dir) / fmt::format("{}-ranks", ranks);
  fs::create_directories(folder);
  const fs::path json = folder / "train.json", log = folder / "train.log";
  fs::remove(json);
  const int64_t threads = settings.launch.threads_per_rank.value_or(1);
  std::vector<std::string> words = {"bench", "train", "--config", given.string()};
  const std::pair<std::string, std::string> own[] = {{"devices", std::to_string(ranks)},
                                                     {"launch.threads_per_rank", std::to_string(threads)},
                                                     {"bench.warmup", std::to_string(settings.bench.warmup)},
                                                     {"bench.steps", std::to_string(settings.bench.steps)},
                                                     {"bench.json", json.string()},
                                                     {"out_dir", folder.string()}};
  for (const auto& [key, value] : own) {
    words.push_back("--" + key);
    words.push_back(value);
  }
  run_child(words, log, fmt::format("bench train with {}", base::plural(ranks, "rank")));
  ScalingRun run = parse_scaling_run(base::read_file(json), json.string());
  run.threads_per_rank = threads;
  return run;
}

}  // namespace

int bench_scaling(const Settings& settings, const std::string& given, const std::string& command) {
  const fs::path given_file = fs::path(settings.out_dir) / "given.yaml";
  fs::create_directories(settings.out_dir);
  base::write_file_atomic(given_file, given);
  const std::vector<int64_t> counts = settings.bench.ranks.value_or(std::vector<int64_t>{1, 2, 4});
  Report report = new_report("scaling", command);
  std::vector<ScalingRun> runs;
  {
    Progress progress("bench scaling");
    for (const int64_t ranks : counts) {
      progress.step(std::ssize(runs) + 1, std::ssize(counts), base::plural(ranks, "rank"));
      runs.push_back(run_train(settings, given_file, ranks));
    }
  }
  const std::vector<ScalingPoint> points = scaling_points(std::move(runs), usable_cores());
  add_rows(report, settings.model.name, points);
  deliver(report, settings);
  const fs::path picture = settings.bench.picture.value_or((fs::path(settings.out_dir) / "scaling.svg").string());
  const std::string svg = scaling_svg(
      fmt::format("{} on {}, {}", settings.model.name, report.processor, base::plural(report.cores, "core")), points);
  base::write_file_atomic(settings.bench.picture ? base::named_file(picture) : picture, svg);
  fmt::print("picture  {}\n", picture.string());
  return 0;
}

}  // namespace trireme::bench
