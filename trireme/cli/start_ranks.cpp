#include "trireme/cli/start_ranks.h"

#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>

#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/good.h"
#include "trireme/launch/machines/meeting_file.h"
#include "trireme/launch/machines/nodes.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/train/resume_settings.h"

namespace trireme::cli {
namespace {

std::vector<std::string> words_of_ranks(const RankStart& start) {
  std::istringstream words(start.job.subcommand);
  std::vector<std::string> all{std::istream_iterator<std::string>(words), {}};
  all.insert(all.end(), start.arguments.begin(), start.arguments.end());
  // The default of another system may hold the time (dialects/hydra_rules.cpp), and ranks would read another one.
  const config::Source& out_dir = start.parsed.provenance.at("out_dir");
  if (out_dir.kind == config::Source::Kind::file && out_dir.text.empty())
    all.insert(all.end(), {"--out_dir", start.parsed.settings.out_dir});
  return all;
}

}  // namespace

std::function<void()> remover_of_leftovers(const launch::LaunchOptions& options, const std::filesystem::path& out_dir) {
  if (options.rendezvous || options.nodes.rank != 0) return {};
  return [folder = std::filesystem::absolute(out_dir)] {
    // The first thread of a killed rank may be gone while others still end and keep its locks.
    constexpr int kTries = 20;
    for (int i = 0; i < kTries && !checkpoint::remove_leftovers(folder); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
}

void tell_what_was_said(launch::LaunchOptions& options) {
  if (const std::string told = checkpoint::told_of_passed_over(); !told.empty())
    options.environment.emplace_back(checkpoint::kToldVariable, told);
}

int start_ranks(const RankStart& start, launch::RankEnvironment& environment) {
  const Job& job = start.job;
  const Settings& settings = start.parsed.settings;
  launch::LaunchOptions options;
  options.planned_bytes = start.planned_bytes;
  options.saves = options.tells_begin = job.saves_when_stopped;
  options.stop_patience = launch::patience_when_stopped(settings.launch.grace);
  options.oversubscribe = settings.launch.oversubscribe;
  std::optional<launch::MeetingFile> meeting;
  options.num_ranks = static_cast<int>(settings.devices.value_or(1));
  if (start.elastic)
    options.rendezvous = launch::make_rendezvous(*start.elastic, settings, false, meeting);
  else
    options.nodes = launch::choose_nodes(settings, environment, meeting);
  options.arguments = words_of_ranks(start);
  options.out_dir = settings.out_dir;
  if (job.owns_out_dir) options.log_link = settings.launch.log_link.value_or("");
  if (job.owns_out_dir) options.remove_leftovers = remover_of_leftovers(options, settings.out_dir);
  options.lock_fd = start.lock_fd;
  options.threads_per_rank = static_cast<int>(settings.launch.threads_per_rank.value_or(0));
  options.pin = settings.launch.pin;
  options.answer_code = job.answer_code;
  options.max_restarts = static_cast<int>(settings.launch.max_restarts);
  if (const auto& shown = settings.launch.log_ranks) options.log_ranks.assign(shown->begin(), shown->end());
  options.failure_hint = [&]() -> std::string {
    const auto newest = checkpoint::find_latest(settings.out_dir);
    if (!newest || !job.owns_out_dir) return "";
    return fmt::format("newest good checkpoint: {}; continue with: {}", newest->string(),
                       train::how_to_go_on(settings));
  };
  tell_what_was_said(options);
  return launch::launch_ranks(options);
}

}  // namespace trireme::cli
