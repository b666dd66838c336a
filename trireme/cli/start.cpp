#include "trireme/cli/start.h"

#include <fmt/format.h>

#include <sstream>

#include "trireme/base/error.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/config/report.h"
#include "trireme/config/validate.h"
#include "trireme/launch/launch.h"
#include "trireme/launch/stop_signal.h"

namespace trireme::cli {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

int launch(const Job& job, const config::Settings& settings, Arguments arguments) {
  launch::LaunchOptions options;
  options.num_ranks = static_cast<int>(*settings.devices);
  options.arguments = words(job.subcommand);
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.out_dir = settings.out_dir;
  options.threads_per_rank = static_cast<int>(settings.launch.threads_per_rank.value_or(0));
  options.pin = settings.launch.pin;
  options.failure_hint = [&]() -> std::string {
    const auto newest = checkpoint::find_latest(settings.out_dir);
    return newest ? fmt::format("newest good checkpoint: {}; continue with: trireme {} ... --resume true",
                                newest->string(), job.subcommand)
                  : "";
  };
  return launch::launch_ranks(options);
}

}  // namespace

int start(const Job& job, Arguments arguments) {
  config::ParsedSettings parsed = config::parse(arguments, job.overlay);
  if (parsed.help) {
    fmt::print("trireme {}\n\n{}", job.subcommand, config::help_text());
    return 0;
  }
  if (job.complete) job.complete(parsed);
  const config::Settings& settings = parsed.settings;
  const launch::RankEnvironment environment = launch::rank_environment();
  config::validate(settings, environment.launched ? environment.world_size : config::world_size(settings));
  if (!environment.launched || environment.global_rank == 0) job.check(settings);
  if (!environment.launched && settings.devices.value_or(1) > 1) return launch(job, settings, arguments);
  launch::install_stop_signal();
  return job.run(settings, environment);
}

}  // namespace trireme::cli
