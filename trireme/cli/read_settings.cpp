#include "trireme/cli/read_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/shared_library.h"
#include "trireme/base/text.h"
#include "trireme/cli/training.h"
#include "trireme/costs/hardware.h"
#include "trireme/dialects/systems.h"
#include "trireme/launch/identity/core_share.h"
#include "trireme/launch/identity/environment.h"

namespace trireme::cli {
namespace {

// Commands that start nothing: they show what a run would do.
bool is_only_read(std::string_view command) { return command.starts_with("explain") || command == "convert_config"; }

// Of trireme plan, by the rule of settle() (settle.cpp); nothing for its table, whose clusters are settled later.
std::optional<int64_t> ranks_of_cluster(const dialects::Reading& reading) {
  const auto named = reading.known("cluster");
  if (reading.command() != "plan" || !named) return std::nullopt;
  const costs::Cluster cluster = costs::parse_cluster(*named);
  const auto count = [&](std::string_view key, int64_t of_cluster) {
    const bool counts =
        reading.is_typed("cluster") ? reading.is_typed(key) : reading.is_given(key) || reading.counts_more(key);
    return counts ? reading.known_count(key).value_or(of_cluster) : of_cluster;
  };
  return count("devices", cluster.devices) * count("num_nodes", cluster.machines);
}

// As Start finds it (start.cpp, rank_count.cpp), before the settings are complete.
int64_t ranks_that_start(const dialects::Reading& reading) {
  if (const auto planned = ranks_of_cluster(reading)) return *planned;
  const auto devices = reading.known_count("devices");
  int64_t num_nodes = reading.known_count("num_nodes").value_or(1);
  if (launch::was_launched()) {
    const auto environment = launch::parse_rank_environment([](const char* name) { return std::getenv(name); });
    num_nodes = std::max<int64_t>(num_nodes, environment.num_nodes);  // one task of srun on each starts the ranks there
    return std::max<int64_t>(environment.world_size, devices.value_or(1) * num_nodes);
  }
  if (devices) return *devices * num_nodes;
  constexpr std::string_view kAxes[] = {"mesh.replicate", "mesh.shard", "mesh.pp", "mesh.cp", "mesh.tp"};
  const bool has_mesh =
      std::ranges::any_of(kAxes, [&](std::string_view axis) { return reading.known_count(axis).has_value(); });
  if (is_only_read(reading.command()) || has_mesh || num_nodes > 1) return num_nodes;
  if (reading.known("accelerator") == "cuda") return std::max(1, base::num_gpus());
  return launch::num_numa_nodes();
}

// Ranks of another launcher and other machines would read another time.
std::string when_run_begins(const dialects::Reading& reading) {
  constexpr std::string_view kElsewhere[] = {"launch.node_rank", "launch.hosts", "launch.hostfile", "launch.print",
                                             "launch.nnodes"};
  const bool alone = !launch::was_launched() && reading.known_count("num_nodes").value_or(1) == 1 &&
                     std::ranges::none_of(kElsewhere, [&](auto key) { return reading.known(key).has_value(); });
  if (!trains(reading.command()) || !alone || reading.is_given("resume")) return "";
  static const std::time_t now = std::time(nullptr);  // words and files of one command have one
  std::tm parts{};
  char text[64];
  return std::strftime(text, sizeof text, "%Y-%m-%d/%H-%M-%S", ::localtime_r(&now, &parts)) > 0 ? text : "";
}

const dialects::Systems& systems() {
  static const dialects::Systems kSystems(
      {.world_size = ranks_that_start, .run_begins = when_run_begins, .was_launched = launch::was_launched});
  return kSystems;
}

}  // namespace

ParsedSettings read_settings(Arguments arguments, config::Overlay overlay) {
  overlay.others = &systems();
  ParsedSettings parsed = parse_settings(arguments, overlay);
  const bool has_dry_runs = trains(overlay.command) || is_only_read(overlay.command) || overlay.command == "plan";
  if (parsed.settings.dry_run && !parsed.help && !has_dry_runs)
    throw UsageError(fmt::format("error: trireme {} does not train; leave dry_run out", overlay.command));
  return parsed;
}

void require_files_for_all(const config::Parsed& parsed) {
  for (const std::string& file : parsed.files) {
    std::error_code ignored;
    // These lead to another file in each process.
    const bool is_own = file == "/dev/stdin" || file.starts_with("/dev/fd/") || file.starts_with("/proc/");
    if (is_own || !std::filesystem::is_regular_file(file, ignored))
      throw UsageError(fmt::format(
          "error: the settings in {} can be read once, and every rank reads them; write them to a file first", file));
  }
}

std::string settings_help(const std::vector<std::string>& words, config::Overlay overlay) {
  overlay.others = &systems();
  return help_text(words, overlay);
}

void say_what_was_read(const std::vector<config::Account>& accounts) {
  if (accounts.empty()) return;
  const auto ignored = std::ranges::count_if(accounts, &config::Account::is_ignored);
  base::info("of {} of another system, {} here; trireme explain config says what became of each",
             base::plural(static_cast<int64_t>(accounts.size()), "setting"),
             ignored == 0 ? "all count" : fmt::format("{} {} no effect", ignored, ignored == 1 ? "has" : "have"));
}

}  // namespace trireme::cli
