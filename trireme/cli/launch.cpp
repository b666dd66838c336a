// trireme launch: torchrun's words for this launcher, for Trireme's own subcommands and for any program.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/command.h"
#include "trireme/cli/elastic.h"
#include "trireme/cli/nodes.h"
#include "trireme/cli/print_job.h"
#include "trireme/cli/ssh_hosts.h"
#include "trireme/config/parse.h"
#include "trireme/config/validate.h"
#include "trireme/launch/launch.h"
#include "trireme/launch/room.h"
#include "trireme/launch/stop_signal.h"
#include "trireme/train/host_plan.h"

namespace trireme::cli {
namespace {

constexpr const char* kLaunchUsage =
    "trireme launch: starts the ranks of a program on this machine, and stays with them to the end\n"
    "  trireme launch --nproc_per_node 4 pretrain llama-5m --train.max_steps 100\n"
    "  trireme launch --nproc_per_node 4 -- ./my_program its arguments\n"
    "\n"
    "A subcommand of trireme, or a program. Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR "
    "and\n"
    "MASTER_PORT in their environment, as torchrun sets them. Every training command starts its own ranks too: "
    "--devices 4.\n"
    "\n"
    "  --nproc_per_node N   ranks on this machine; auto or cpu: one for each core  [1]\n"
    "  --nnodes M           machines that take part, each with the same command; MIN:MAX with --rdzv_endpoint  [1]\n"
    "  --rdzv_endpoint H:P  where the machines' launchers meet, get their numbers, and meet again after a failure\n"
    "  --node_rank K        which of them this is, 0 to M - 1\n"
    "  --master_addr HOST   address of machine 0, as the others reach it\n"
    "  --master_port PORT   port there  [29500; on one machine the kernel chooses]\n"
    "  --max_restarts N     how often all ranks start again after a failure  [0]\n"
    "  --log_dir FOLDER     every rank's output in FOLDER/logs; without it all of it is shown\n"
    "  --log_ranks LIST     ranks besides 0 whose output is shown too: 1,3\n"
    "  --oversubscribe      starts ranks for which this machine has too few cores or too little memory\n"
    "  --standalone         one machine, nothing else is asked\n"
    "  --token_file FILE    the job's secret, where several machines are to share one of yours\n"
    "  --hosts a:4,b:4      starts on those machines by ssh; or --hostfile FILE, a line each: a slots=4\n"
    "  --print KIND         prints a job file and starts nothing: sbatch, k8s (with --image IMAGE and --volume "
    "CLAIM:/PATH), hostfile\n"
    "\n"
    "Under srun with one task on each machine, the tasks find each other by a file in --log_dir.\n";

const std::vector<std::string> kOptions = {
    "nproc_per_node", "nnodes",        "node_rank",    "master_addr", "master_port",  "max_restarts", "log_dir",
    "log_ranks",      "standalone",    "no_python",    "hosts",       "hostfile",     "print",        "image",
    "volume",         "rdzv_endpoint", "rdzv_backend", "token_file",  "oversubscribe"};

bool is_flag(const std::string& name) { return name == "standalone" || name == "no_python" || name == "oversubscribe"; }

struct LaunchWords {
  std::map<std::string, std::string> options;
  std::vector<std::string> program;

  // The words again, as one machine of several gets them.
  std::vector<std::string> command(const std::map<std::string, std::string>& replaced) const {
    std::map<std::string, std::string> kept = options;
    for (const char* name : {"hosts", "hostfile", "print", "image", "volume"}) kept.erase(name);
    for (const auto& [name, value] : replaced) kept[name] = value;
    std::vector<std::string> words = {"launch"};
    for (const auto& [name, value] : kept) {
      words.push_back("--" + name);
      if (!is_flag(name)) words.push_back(value);
    }
    words.emplace_back("--");
    words.insert(words.end(), program.begin(), program.end());
    return words;
  }
};

LaunchWords read_launch_words(Arguments arguments) {
  LaunchWords words;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--" || !word.starts_with("--")) {
      const auto rest = arguments.subspan(word == "--" ? i + 1 : i);
      words.program.assign(rest.begin(), rest.end());
      break;
    }
    const size_t equals = word.find('=');
    std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    if (std::find(kOptions.begin(), kOptions.end(), name) == kOptions.end()) {
      const auto near = base::nearest(name, kOptions);
      throw UsageError(fmt::format("error: trireme launch has no --{}{}\n{}", name,
                                   near ? fmt::format(" (did you mean --{}?)", *near) : "", kLaunchUsage));
    }
    if (!is_flag(name) && equals == std::string::npos && i + 1 == arguments.size())
      throw UsageError(fmt::format("error: --{} needs a value", name));
    words.options[name] = is_flag(name)                 ? "true"
                          : equals != std::string::npos ? word.substr(equals + 1)
                                                        : arguments[++i];
  }
  return words;
}

int64_t number(const LaunchWords& words, const std::string& name, int64_t otherwise, const char* what) {
  const auto found = words.options.find(name);
  if (found == words.options.end()) return otherwise;
  const auto count = base::parse_count(found->second);
  if (!count || *count > 1'000'000)
    throw UsageError(fmt::format("error: --{} {} is not {}", name, found->second, what));
  return *count;
}

int ranks_of(const LaunchWords& words) {
  const auto found = words.options.find("nproc_per_node");
  if (found != words.options.end() && (found->second == "auto" || found->second == "cpu"))
    return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return static_cast<int>(number(words, "nproc_per_node", 1, "a number of ranks; auto is one for each core"));
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

std::string kind_of_file(const std::string& kind) {
  if (kind != "sbatch" && kind != "k8s" && kind != "hostfile")
    throw UsageError(fmt::format("error: --print {}: there is sbatch, k8s and hostfile", kind));
  return kind;
}

// The same rules as num_nodes of a training command.
config::Settings settings_of(const LaunchWords& words) {
  config::Settings s;
  const auto text_of = [&](const char* name) -> std::optional<std::string> {
    const auto found = words.options.find(name);
    return found == words.options.end() ? std::nullopt : std::optional(found->second);
  };
  s.launch.rdzv_endpoint = text_of("rdzv_endpoint");
  s.launch.max_restarts = number(words, "max_restarts", 0, "a number of restarts");
  const std::string backend = text_of("rdzv_backend").value_or("c10d");
  if (backend != "c10d" && backend != "static")
    throw UsageError(
        fmt::format("error: --rdzv_backend {}: launchers meet in a store of their own; leave it out", backend));
  const auto nnodes = text_of("nnodes");
  if (nnodes && (s.launch.rdzv_endpoint || nnodes->find(':') != std::string::npos)) {
    s.launch.nnodes = nnodes;
  } else {
    s.num_nodes = number(words, "nnodes", 1, "a number of machines");
  }
  if ((s.num_nodes > 1 || s.launch.nnodes) && words.options.contains("standalone"))
    throw UsageError(fmt::format("error: --standalone is for one machine, --nnodes says {}", *nnodes));
  if (words.options.contains("node_rank")) s.launch.node_rank = number(words, "node_rank", 0, "a machine's number");
  if (words.options.contains("master_addr")) s.launch.master_addr = words.options.at("master_addr");
  if (words.options.contains("hosts")) s.launch.hosts = parts_of(words.options.at("hosts"));
  if (words.options.contains("hostfile")) s.launch.hostfile = words.options.at("hostfile");
  if (words.options.contains("print")) s.launch.print = kind_of_file(words.options.at("print"));
  if (words.options.contains("image")) s.launch.image = words.options.at("image");
  if (words.options.contains("volume")) s.launch.volume = words.options.at("volume");
  if (const char* file = std::getenv("TRIREME_LAUNCH_TOKEN_FILE")) s.launch.token_file = file;  // as on_host sets it
  if (words.options.contains("token_file")) s.launch.token_file = words.options.at("token_file");
  s.out_dir = words.options.contains("log_dir") ? words.options.at("log_dir") : ".";
  s.launch.oversubscribe = words.options.contains("oversubscribe");
  s.devices = ranks_of(words);
  s.launch.master_port = number(words, "master_port", s.launch.master_port, "a port");
  return s;
}

std::vector<int> log_ranks_of(const LaunchWords& words) {
  std::vector<int> ranks;
  const auto found = words.options.find("log_ranks");
  if (found == words.options.end()) return ranks;
  std::istringstream in(found->second);
  for (std::string word; std::getline(in, word, ',');) {
    const auto rank = base::parse_count(word);
    if (!rank || *rank > 1'000'000)
      throw UsageError(fmt::format("error: --log_ranks {} is no list of ranks", found->second));
    ranks.push_back(static_cast<int>(*rank));
  }
  return ranks;
}

// A program is a path, or a name on PATH.
std::string find_on_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  std::istringstream folders(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (base::is_file(path)) return path.string();
  }
  throw UsageError(fmt::format("error: {} is neither a subcommand of trireme nor a program on PATH", name));
}

// One task of srun on each machine: its launcher.
bool takes_over_srun(const config::Settings& settings, launch::RankEnvironment& environment) {
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

// What ranks of pretrain plan together. What is wrong with its settings its ranks say themselves.
int64_t planned_bytes(const config::Settings& launched, const std::vector<std::string>& program) try {
  if (program[0] != "pretrain") return 0;
  config::ParsedSettings parsed = config::parse(Arguments(program).subspan(1), {.command = "pretrain"});
  parsed.settings.devices = launched.devices;
  parsed.settings.num_nodes = launched.num_nodes;
  config::validate(parsed.settings, config::world_size(parsed.settings));
  return train::plan_host(parsed.settings);
} catch (const UsageError&) {
  return 0;
}

int launch_on_hosts(const LaunchWords& words, const config::Settings& settings) {
  const auto on_host = [&](const HostPlace& place) {
    std::map<std::string, std::string> more{{"nproc_per_node", std::to_string(*settings.devices)}};
    if (place.count > 1) {
      more["nnodes"] = std::to_string(place.count);
      more["node_rank"] = std::to_string(place.rank);
      more["master_addr"] = place.first_address;
    }
    return words.command(more);
  };
  return start_on_hosts(settings, on_host, [] {});
}

}  // namespace

int run_launch(Arguments arguments) {
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    fmt::print("{}", kLaunchUsage);
    return 0;
  }
  LaunchWords words = read_launch_words(arguments);
  if (words.program.empty()) throw UsageError(fmt::format("error: trireme launch needs a program\n{}", kLaunchUsage));
  config::ParsedSettings parsed{.settings = settings_of(words)};
  if (words.options.contains("nproc_per_node")) parsed.provenance["devices"].kind = config::Source::Kind::command_line;
  if (words.options.contains("nnodes")) parsed.provenance["num_nodes"].kind = config::Source::Kind::command_line;
  take_over_hosts(parsed);
  config::Settings& settings = parsed.settings;
  launch::RankEnvironment environment;
  if (takes_over_srun(settings, environment)) settings.num_nodes = environment.num_nodes;
  if (settings.launch.print && words.program[0] == "pretrain" && !says_resume(words))
    words.program.insert(words.program.end(), {"--resume", "auto"});
  if (settings.launch.print)
    return print_job_file(settings, words.command({{"nproc_per_node", std::to_string(*settings.devices)}}));
  if (settings.launch.hosts || settings.launch.hostfile) return launch_on_hosts(words, settings);
  launch::LaunchOptions options;
  options.num_ranks = static_cast<int>(*settings.devices);
  options.max_restarts = static_cast<int>(settings.launch.max_restarts);
  options.tells_begin = words.program[0] == "pretrain";
  options.oversubscribe = settings.launch.oversubscribe;
  launch::require_room(
      {.num_ranks = options.num_ranks, .bytes_of_a_rank = is_subcommand(words.program[0]) ? launch::kBytesOfARank : 0},
      options.oversubscribe);  // before a plan is made, which takes seconds for so many
  options.planned_bytes = planned_bytes(settings, words.program);
  options.log_ranks = log_ranks_of(words);
  if (words.options.contains("log_dir")) options.out_dir = words.options.at("log_dir");
  options.arguments = words.program;
  if (!is_subcommand(words.program[0])) {
    options.executable = find_on_path(words.program[0]);
    options.arguments.erase(options.arguments.begin());
  }
  launch::install_stop_signal();  // the wait for other machines ends by it; the ranks' launcher takes it over
  std::optional<launch::MeetingFile> meeting;
  if (!settings.launch.rdzv_endpoint) check_nodes(settings, environment);
  if (const auto elastic = elastic_of(settings)) {
    options.rendezvous = make_rendezvous(*elastic, settings, true, meeting);
  } else {
    options.nodes = choose_nodes(settings, environment, meeting);
  }
  return launch::launch_ranks(options);
}

}  // namespace trireme::cli
