// trireme launch: starts the ranks of a subcommand of Trireme or of any program, with the options of torchrun.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/cli/command.h"
#include "trireme/cli/launch_words.h"
#include "trireme/cli/read_settings.h"
#include "trireme/cli/start_ranks.h"
#include "trireme/cli/training.h"
#include "trireme/launch/machines/elastic.h"
#include "trireme/launch/machines/nodes.h"
#include "trireme/launch/machines/print_job.h"
#include "trireme/launch/machines/room.h"
#include "trireme/launch/machines/same_settings.h"
#include "trireme/launch/machines/ssh_hosts.h"
#include "trireme/launch/supervise/launch.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/settings/validate.h"
#include "trireme/train/resume_settings.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

// A program is a path, or a name on PATH.
std::string find_on_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  if (const auto file = base::find_program_file(name)) return file->string();
  throw UsageError(fmt::format("error: {} is neither a subcommand of trireme nor a program on PATH", name));
}

// srun started one task on each machine: this is the launcher of one.
bool takes_over_srun(const Settings& settings, launch::RankEnvironment& environment) {
  if (settings.launch.node_rank || std::getenv("SLURM_STEP_ID") == nullptr) return false;
  const launch::RankEnvironment found = launch::rank_environment();
  if (found.launcher != "srun" || found.world_size != found.num_nodes || found.num_nodes == 1) return false;
  environment = found;
  return true;
}

bool says_resume(const LaunchWords& words) {
  return std::any_of(words.program.begin(), words.program.end(), [](const std::string& w) {
    return w == "--resume" || w.starts_with("--resume=") || w.starts_with("resume=");
  });
}

// The settings that a training command says; none for other commands and if they are wrong, because the ranks report
// that themselves.
std::optional<ParsedSettings> settings_said(const Settings& launched, const std::vector<std::string>& program) try {
  if (!trains(program[0])) return std::nullopt;
  config::Overlay overlay = training_overlay(program[0]);  // files of other systems ask for the number of ranks
  overlay.values.insert(overlay.values.end(), {{"devices", std::to_string(launched.devices.value_or(1))},
                                               {"num_nodes", std::to_string(launched.num_nodes)}});
  return read_settings(Arguments(program).subspan(1), overlay);
} catch (const Error&) {
  return std::nullopt;
}

// Those that its ranks will have, likewise.
std::optional<Settings> settings_of_ranks(const Settings& launched, ParsedSettings parsed) try {
  parsed.settings.devices = launched.devices;
  parsed.settings.num_nodes = launched.num_nodes;
  train::place_run(parsed, /*owns_out_dir=*/true);
  train::take_over_run(parsed);
  validate(parsed.settings, world_size(parsed.settings));
  return parsed.settings;
} catch (const Error&) {
  return std::nullopt;
}

// Bytes that the ranks plan together; 0 if that is refused, because the ranks report it themselves.
int64_t planned_bytes(const Settings& trained) try { return train::plan_host(trained); } catch (const UsageError&) {
  return 0;
}

int launch_on_hosts(const LaunchWords& words, const Settings& settings) {
  const auto on_host = [&](const launch::HostPlace& place) {
    std::vector<std::pair<std::string, std::string>> more{{"nproc_per_node", std::to_string(*settings.devices)}};
    if (place.count > 1)
      more.insert(more.end(), {{"nnodes", std::to_string(place.count)},
                               {"node_rank", std::to_string(place.rank)},
                               {"master_addr", place.first_address}});
    return words.command(more);
  };
  return launch::start_on_hosts(settings, trains(words.program[0]), on_host, [] {});
}

// What the program of `words` does when it is asked to stop, as the command itself would say.
launch::WhenStopped when_stopped(const std::vector<std::string>& words) {
  const auto gives = [&](std::string_view key) {
    return std::ranges::any_of(words, [&](std::string_view word) {
      const bool is_option = word.starts_with("--");
      if (!is_option && word.find('=') == word.npos) return false;  // prompts=a is a setting, too
      word = word.substr(0, word.find('='));
      if (is_option) word.remove_prefix(2);
      return word == key || word == fmt::format("generate.{}", key);
    });
  };
  if (trains(words[0]) || !is_subcommand(words[0])) return launch::WhenStopped::resumes;
  if (words[0] == "evaluate") return launch::WhenStopped::ends;
  if (words[0] == "bench" && words.size() > 1 && words[1] == "checkpoint") return launch::WhenStopped::ends;
  return words[0] == "generate" && gives("prompts") && gives("output") ? launch::WhenStopped::goes_on
                                                                       : launch::WhenStopped::dies;
}

// Each rank would do all of it, and their files would meet.
void refuse_command_of_one(const LaunchWords& words) {
  constexpr std::string_view kAlone[] = {"convert", "merge_lora", "data",   "plan",
                                         "explain", "checkpoint", "report", "convert_config"};
  if (words.settings.devices.value_or(1) * words.settings.num_nodes > 1 &&
      std::ranges::find(kAlone, words.program[0]) != std::end(kAlone))
    throw UsageError(
        fmt::format("trireme {} runs in one process; leave trireme launch and its options out", words.program[0]));
}

int launch_here(LaunchWords& words) {
  refuse_command_of_one(words);
  ParsedSettings parsed;
  parsed.settings = words.settings;
  if (words.gives_devices) parsed.provenance["devices"].kind = config::Source::Kind::command_line;
  if (words.gives_nodes) parsed.provenance["num_nodes"].kind = config::Source::Kind::command_line;
  launch::take_over_hosts(parsed);
  Settings& settings = parsed.settings;
  launch::RankEnvironment environment;
  if (takes_over_srun(settings, environment)) settings.num_nodes = environment.num_nodes;
  if (settings.launch.print && trains(words.program[0]) && !says_resume(words))
    words.program.insert(words.program.end(), {"--resume", "auto"});
  if (settings.launch.print)
    return launch::print_job_file(settings, words.command({{"nproc_per_node", std::to_string(*settings.devices)}}),
                                  when_stopped(words.program));
  if (settings.launch.hosts || settings.launch.hostfile) return launch_on_hosts(words, settings);
  launch::LaunchOptions options;
  options.num_ranks = static_cast<int>(*settings.devices);
  options.max_restarts = static_cast<int>(settings.launch.max_restarts);
  options.saves = options.tells_begin = trains(words.program[0]);
  options.oversubscribe = settings.launch.oversubscribe;
  launch::require_room(
      {.num_ranks = options.num_ranks, .bytes_of_a_rank = is_subcommand(words.program[0]) ? launch::kBytesOfARank : 0},
      options.oversubscribe);  // before planning, which takes seconds for many ranks
  std::optional<Settings> trained;
  // What other machines must have alike. Of a program that is not ours only the ranks are known.
  std::string common = fmt::format(R"({{"devices": "{}"}})", options.num_ranks);
  if (std::optional<ParsedSettings> said = settings_said(settings, words.program)) {
    require_files_for_all(*said);
    common = launch::common_settings_of_machines(said->settings);
    trained = settings_of_ranks(settings, *std::move(said));
  }
  if (trained) options.planned_bytes = planned_bytes(*trained);
  if (trained) options.stop_patience = launch::patience_when_stopped(trained->launch.grace);
  if (const auto& shown = settings.launch.log_ranks) options.log_ranks.assign(shown->begin(), shown->end());
  if (words.log_dir) options.out_dir = *words.log_dir;
  options.arguments = words.program;
  if (!is_subcommand(words.program[0])) {
    options.executable = find_on_path(words.program[0]);
    options.arguments.erase(options.arguments.begin());
  }
  launch::install_stop_signal();  // also ends the wait for other machines
  std::optional<launch::MeetingFile> meeting;
  auto elastic = launch::elastic_of(settings);
  if (!settings.launch.rdzv_endpoint) launch::check_nodes(settings, environment);
  if (elastic) {
    elastic->settings = common;
    options.rendezvous = launch::make_rendezvous(*elastic, settings, true, meeting);
  } else {
    options.nodes = launch::choose_nodes(settings, environment, meeting);
  }
  if (trained) options.remove_leftovers = remover_of_leftovers(options, trained->out_dir);
  tell_what_was_said(options);
  return launch::launch_ranks(options);
}

}  // namespace

int run_launch(Arguments arguments) {
  std::optional<LaunchWords> words = read_launch_words(arguments);
  if (!words) {
    fmt::print("{}", launch_help());
    return 0;
  }
  for (const std::string& note : words->notes) base::info("{}", note);
  try {
    return launch_here(*words);
  } catch (const base::FileError&) {
    throw;
  } catch (const UsageError& refusal) {
    throw UsageError(words->in_own_words(refusal.what()));
  }
}

}  // namespace trireme::cli
