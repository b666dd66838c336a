#include "trireme/cli/launch_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/config/report.h"
#include "trireme/config/value.h"

namespace trireme::cli {
namespace {

constexpr const char* kUsage =
    "trireme launch: starts the ranks of a program on this machine, and supervises them to the end\n"
    "  trireme launch --nproc_per_node 4 pretrain llama-5m --train.max_steps 100\n"
    "  trireme launch --nproc_per_node 4 -- ./my_program its arguments\n"
    "\n"
    "It starts a subcommand of trireme, or any program. Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,\n"
    "MASTER_ADDR and MASTER_PORT in their environment, as torchrun sets them. Training commands can also start their\n"
    "own ranks: --devices 4. Under srun with one task on each machine, the tasks meet through a file in --log_dir.\n"
    "\n";

// Options that are not repeated on another machine.
constexpr std::string_view kOfThePrinter[] = {"hosts", "hostfile", "include", "exclude", "print", "image", "volume"};

// Options of torchrun that are no settings here.
struct OtherOptions {
  std::optional<int64_t> nproc_per_node = 1;
  std::optional<std::string> nnodes;
  bool standalone = false, no_python = false;
  std::string rdzv_backend = "c10d";
};

void cores_for_ranks(config::Given& given) {
  if (given.key == "nproc_per_node" && given.text == "cpu") given.text = "auto";
}

// Rows of the section launch under torchrun's names, and the options above.
config::Section section_of(LaunchWords& words, OtherOptions& other) {
  std::vector<config::Setting> rows = {
      {"nproc_per_node",
       &other.nproc_per_node,
       "ranks on this machine; auto or cpu: one for each core",
       {.unit = "ranks", .at_least = 1, .at_most = 100'000, .absent = "auto", .when_absent = "one a core"}},
      {"nnodes",
       &other.nnodes,
       "machines that take part, each with the same command; MIN:MAX with rdzv_endpoint",
       {.absent = "null", .when_absent = "1", .example = "2"}},
      {"log_dir",
       &words.log_dir,
       "write every rank's output to FOLDER/logs",
       {.absent = "null", .when_absent = "the output is only shown", .example = "out/mine"}},
      {"standalone", &other.standalone, "run on this machine alone"},
      {"no_python", &other.no_python, "accepted as in torchrun; here programs never are Python scripts"},
      {"rdzv_backend",
       &other.rdzv_backend,
       "accepted as in torchrun, without effect: launchers have a store of their own",
       {.classes = {"c10d", "static"}}}};
  for (config::Setting& row : section(words.settings.launch).rows) {
    constexpr std::string_view kPrefix = "launch.";
    constexpr std::string_view kTaken[] = {"rdzv_endpoint", "node_rank", "master_addr", "master_port",
                                           "max_restarts",  "log_ranks", "token_file",  "hosts",
                                           "hostfile",      "include",   "exclude",     "oversubscribe",
                                           "print",         "image",     "volume"};
    row.key.remove_prefix(kPrefix.size());
    if (std::find(std::begin(kTaken), std::end(kTaken), row.key) != std::end(kTaken)) rows.push_back(std::move(row));
  }
  return {.name = "", .title = "torchrun's words", .rows = std::move(rows)};
}

void take_nodes(const OtherOptions& other, Settings& s) {
  if (!other.nnodes) return;
  if (other.standalone && *other.nnodes != "1")
    throw UsageError(fmt::format("error: --standalone is for one machine, --nnodes says {}", *other.nnodes));
  if (s.launch.rdzv_endpoint || other.nnodes->find(':') != std::string::npos) {
    s.launch.nnodes = other.nnodes;
    return;
  }
  const auto count = base::parse_count(*other.nnodes);
  if (!count || *count < 1 || *count > 100'000)
    throw UsageError(fmt::format("error: --nnodes {} is not a number of machines", *other.nnodes));
  s.num_nodes = *count;
}

std::vector<std::string> options_of(const config::Parsed& parsed, const config::Section& section) {
  std::vector<std::string> options;
  for (const config::Setting& row : section.rows) {
    if (!parsed.given(std::string(row.key)) ||
        std::find(std::begin(kOfThePrinter), std::end(kOfThePrinter), row.key) != std::end(kOfThePrinter))
      continue;
    options.push_back(fmt::format("--{}", row.key));
    options.push_back(config::value_text(row));
  }
  return options;
}

}  // namespace

std::vector<std::string> LaunchWords::command(const std::vector<std::pair<std::string, std::string>>& more) const {
  std::vector<std::string> words = {"launch"};
  for (const auto& [name, value] : more) words.insert(words.end(), {"--" + name, value});
  for (size_t i = 0; i < options.size(); i += 2) {
    const bool is_replaced =
        std::any_of(more.begin(), more.end(), [&](const auto& pair) { return "--" + pair.first == options[i]; });
    if (!is_replaced) words.insert(words.end(), {options[i], options[i + 1]});
  }
  words.emplace_back("--");
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

std::string launch_help() {
  LaunchWords words;
  OtherOptions other;
  return kUsage + config::help_text(config::Table({section_of(words, other)}));
}

std::optional<LaunchWords> read_launch_words(Arguments arguments) {
  LaunchWords words;
  OtherOptions other;
  const config::Section options = section_of(words, other);
  Settings& s = words.settings;
  s.launch.token_file = std::getenv("TRIREME_LAUNCH_TOKEN_FILE") == nullptr  // set by on_host
                            ? std::nullopt
                            : std::optional<std::string>(std::getenv("TRIREME_LAUNCH_TOKEN_FILE"));
  config::Parsed parsed = config::parse(
      arguments,
      {.command = "launch", .positional = "", .takes_rest = true, .own = {options}, .dialects = {cores_for_ranks}});
  if (parsed.help) return std::nullopt;
  words.program = std::move(parsed.list);
  if (words.program.empty())
    throw UsageError("error: trireme launch needs a program\n  trireme launch --nproc_per_node 4 -- ./my_program");
  take_nodes(other, s);
  s.out_dir = words.log_dir.value_or(".");
  s.devices = other.nproc_per_node.value_or(std::max(1U, std::thread::hardware_concurrency()));
  words.gives_devices = parsed.given("nproc_per_node");
  words.gives_nodes = parsed.given("nnodes");
  words.options = options_of(parsed, options);
  return words;
}

}  // namespace trireme::cli
