#include "trireme/cli/launch_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <deque>
#include <string_view>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/cli/launch_variables.h"
#include "trireme/cli/read_settings.h"
#include "trireme/cli/training.h"
#include "trireme/config/arguments.h"
#include "trireme/config/report.h"
#include "trireme/config/value.h"
#include "trireme/launch/machines/print_job.h"

namespace trireme::cli {
namespace {

constexpr const char* kUsage =
    "trireme launch: starts the ranks of a program on this machine, and supervises them to the end\n"
    "  trireme launch --nproc_per_node 4 pretrain llama-5m --train.max_steps 100\n"
    "  trireme launch --nproc_per_node 4 -- ./my_program its arguments\n"
    "\n"
    "It starts a subcommand of trireme, or any program. Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,\n"
    "MASTER_ADDR, MASTER_PORT and TORCHELASTIC_RESTART_COUNT in their environment, as torchrun sets them. Training\n"
    "commands can also start their own ranks: --devices 4. Under srun with one task on each machine, the tasks meet\n"
    "through a file in --log_dir.\n"
    "Trireme's store listens at MASTER_PORT. A program of torch.distributed needs another free port for its own:\n"
    "  trireme launch --nproc_per_node 4 -- env MASTER_PORT=29600 python train.py\n"
    "Options that are not typed are read from PET_NNODES, PET_NPROC_PER_NODE and so on, as by torchrun.\n"
    "\n";

// Options of torchrun that are no settings here.
struct OtherOptions {
  std::optional<int64_t> nproc_per_node = 1;
  std::optional<std::string> nnodes;
  bool standalone = false, no_python = false;
  std::string rdzv_backend = "c10d";
  std::optional<std::string> unread;
  std::optional<std::string> config_file;
  std::optional<int64_t> num_processes;
  std::deque<std::string> sentences;  ///< that rows of help point to
};

// Short names, and why they have nothing to decide here.
constexpr std::pair<std::string_view, std::string_view> kUnread[] = {
    {"m", "of -m litgpt, the subcommand is what runs"}, {"r", "as redirects"}, {"t", "as tee"}};

// Settings launch.* that are options here, and what help says of them where a setting's own words name settings that
// trireme launch does not have.
struct Taken {
  std::string_view key, help = {}, when_absent = {};
};
constexpr Taken kTaken[] = {
    {.key = "rdzv_endpoint", .when_absent = "node_rank says which machine this is"},
    {.key = "node_rank",
     .help = "number of this machine, 0 to nnodes - 1; every machine starts the same command with its own number"},
    {.key = "master_addr",
     .when_absent = "srun's tasks meet by a file in log_dir, or else in the current folder; it must be given for other "
                    "machines"},
    {.key = "master_port"},
    {.key = "max_restarts"},
    {.key = "log_ranks",
     .help = "with log_dir, ranks besides 0 whose output is shown, each line with its rank before it; without it, all "
             "ranks are shown",
     .when_absent = "rank 0 alone, with log_dir"},
    {.key = "token_file",
     .when_absent = "a new secret for each job; other machines find it in log_dir, or else in the current folder"},
    {.key = "hosts",
     .help = "machines to start by ssh, each NAME or NAME:RANKS; without RANKS each has nproc_per_node",
     .when_absent = "this machine, or those of hostfile"},
    {.key = "hostfile"},
    {.key = "include"},
    {.key = "exclude", .help = "machines or slots of the list to leave out, written as in include"},
    {.key = "oversubscribe"},
    {.key = "print"},
    {.key = "image", .help = "container image that holds trireme, for print k8s"},
    {.key = "volume",
     .help = "shared storage for print k8s: CLAIM:/PATH, a PersistentVolumeClaim and where pods see it; log_dir lies "
             "in it"}};

// torchrun's --nproc_per_node cpu, gpu and auto: as many as there are. Options end where the program begins.
std::vector<std::string> with_counts(Arguments arguments) {
  std::vector<std::string> words(arguments.begin(), arguments.end());
  constexpr std::string_view kFlags[] = {"--standalone", "--no_python", "--no-python", "--oversubscribe"};
  bool is_value = false;
  for (size_t i = 0; i < words.size() && words[i] != "--" && (words[i].starts_with('-') || is_value); ++i) {
    const bool is_flag = std::ranges::find(kFlags, words[i]) != std::end(kFlags);
    is_value = words[i].starts_with('-') && words[i].find('=') == std::string::npos &&
               (!is_flag || (i + 1 < words.size() && config::is_truth_word(words[i + 1])));
    for (const std::string name : {"--nproc_per_node", "--nproc-per-node"}) {
      if (words[i].starts_with(name + "=")) words[i] = name + "=" + count_of_ranks(words[i].substr(name.size() + 1));
      if (words[i] == name && i + 1 < words.size()) words[i + 1] = count_of_ranks(words[i + 1]);
    }
  }
  return words;
}

// Rows of the section launch under torchrun's names, and the options above.
config::Section section_of(LaunchWords& words, OtherOptions& other) {
  std::vector<config::Setting> rows = {
      {"nproc_per_node",
       &other.nproc_per_node,
       "ranks on this machine; cpu: one for each core; gpu: one for each GPU; auto: as gpu, or cpu where there is none",
       {.unit = "ranks", .at_least = 1, .at_most = 100'000, .absent = "auto", .when_absent = "one a GPU or core"}},
      {"config_file",
       &other.config_file,
       "Accelerate's file: the ranks and machines to start, and settings for a subcommand that trains",
       {.absent = "null", .when_absent = "none", .example = "fsdp.yaml"}},
      {"num_processes",
       &other.num_processes,
       "ranks on all machines together, as in accelerate launch",
       {.unit = "ranks", .at_least = 1, .at_most = 100'000, .absent = "null", .when_absent = "nproc_per_node says it"}},
      {"nnodes",
       &other.nnodes,
       "machines that take part, each with the same command; MIN:MAX with rdzv_endpoint",
       {.absent = "null", .when_absent = "1", .example = "2"}},
      {"log_dir",
       &words.log_dir,
       "write every rank's output to FOLDER/logs, and show that of rank 0 and of log_ranks",
       {.absent = "null", .when_absent = "the output of all ranks is only shown", .example = "out/mine"}},
      {"standalone", &other.standalone, "run on this machine alone"},
      {"no_python", &other.no_python, "accepted, without effect: programs never are Python scripts here"},
      {"rdzv_backend",
       &other.rdzv_backend,
       "accepted, without effect: launchers have a store of their own",
       {.classes = {"c10d", "static"}}}};
  for (config::Setting& row : section(words.settings.launch).rows) {
    constexpr std::string_view kPrefix = "launch.";
    row.key.remove_prefix(kPrefix.size());
    const Taken* taken = std::ranges::find(kTaken, row.key, &Taken::key);
    if (taken == std::end(kTaken)) continue;
    if (!taken->help.empty()) row.help = taken->help;
    if (!taken->when_absent.empty()) row.rules.when_absent = taken->when_absent;
    rows.push_back(std::move(row));
  }
  const size_t num_own = rows.size();
  for (size_t i = 0; i < num_own; ++i) {
    const std::string_view theirs = name_in_accelerate(rows[i].key);
    if (theirs.empty()) continue;
    config::Setting alias = rows[i];
    alias.key = theirs;
    rows.push_back(std::move(alias));
  }
  const auto accept = [&](std::string_view key, std::string_view why) {
    rows.push_back({key,
                    &other.unread,
                    other.sentences.emplace_back(fmt::format("accepted, without effect: {}", why)),
                    {.absent = "null"}});
  };
  for (const TorchrunOption& option : torchrun_options())
    if (!option.unread.empty() && option.is_word) accept(option.name, option.unread);
  for (const auto& [key, why] : kUnread) accept(key, why);
  return {
      .name = "",
      .title = "torchrun's words",
      .rows = std::move(rows),
          // Of accelerate launch, which gives them to the training.
      .others = {
          {{"mixed_precision"}, "it is an option of accelerate launch; give precision behind --"},
          {{"multi_gpu", "use_fsdp", "use_deepspeed", "zero_stage", "fsdp_sharding_strategy"},
           "it is an option of accelerate launch; give strategy behind --"},
          {{"gradient_clipping"}, "it is an option of accelerate launch; give train.max_norm behind --"},
          {{"gradient_accumulation_steps"},
           "it is an option of accelerate launch; give train.global_batch_size and train.micro_batch_size behind --"},
          {{"cpu"}, "it is an option of accelerate launch; give accelerator cpu behind --"},
          {{"gpu_ids", "zero3_init_flag"}, "it is an option of accelerate launch that is not needed; leave it out"},
      }};
}

// How the user said it: "--nnodes 2", or "PET_NNODES=2".
std::string as_said(const config::Parsed& parsed, std::string_view option) {
  const std::string theirs(name_in_accelerate(option));
  return parsed.provenance.at(!theirs.empty() && parsed.given(theirs) ? theirs : std::string(option)).text;
}

void take_nodes(const config::Parsed& parsed, const OtherOptions& other, Settings& s) {
  if (other.standalone) s.launch.rdzv_endpoint.reset();  // as in torchrun, whatever it says
  if (!other.nnodes) return;
  if (other.standalone && *other.nnodes != "1" && *other.nnodes != "1:1")
    throw UsageError(fmt::format("error: {} is for one machine, and {} is not; leave out one of the two",
                                 as_said(parsed, "standalone"), as_said(parsed, "nnodes")));
  if (s.launch.rdzv_endpoint || other.nnodes->find(':') != std::string::npos) {
    s.launch.nnodes = other.nnodes;
    return;
  }
  const auto count = base::parse_count(*other.nnodes);
  if (!count || *count < 1 || *count > 100'000)
    throw UsageError(fmt::format("error: {} is not a number of machines", as_said(parsed, "nnodes")));
  s.num_nodes = *count;
}

// num_processes counts the ranks of all machines.
void take_processes(int64_t num_processes, Settings& s) {
  if (num_processes % s.num_nodes != 0)
    throw UsageError(
        fmt::format("error: --num_processes {} cannot be divided among {} machines", num_processes, s.num_nodes));
  s.devices = num_processes / s.num_nodes;
}

// What Accelerate's file says of ranks and machines, unless an option says it. A subcommand that trains reads the rest
// of the file itself, with the counts that options say.
void take_file(const config::Parsed& parsed, const OtherOptions& other, LaunchWords& words) {
  const auto is_given = [&](std::string_view ours) { return is_typed(parsed, ours); };
  Settings& s = words.settings;
  const bool gives_devices = is_given("nproc_per_node") || other.num_processes;
  std::vector<std::string> reads = {"--config_file", *other.config_file};
  if (is_given("nnodes") && !s.launch.nnodes)  // of MIN:MAX machines the file's count divides its processes
    reads.insert(reads.end(), {"--num_nodes", std::to_string(s.num_nodes)});
  // num_processes are those of all machines, whose number the file may say.
  if (gives_devices) reads.insert(reads.end(), {"--devices", std::to_string(other.num_processes.value_or(*s.devices))});
  const Settings file = read_settings(reads, training_overlay("pretrain")).settings;
  if (!is_given("nnodes")) s.num_nodes = file.num_nodes;
  if (other.standalone && s.num_nodes > 1)
    throw UsageError(
        fmt::format("error: --standalone is for one machine, and {} says {}; leave --standalone out, or say "
                    "--num_machines 1",
                    *other.config_file, s.num_nodes));
  if (!gives_devices) s.devices = file.devices.value_or(1);
  if (other.num_processes) take_processes(*other.num_processes, s);
  if (!is_given("node_rank")) s.launch.node_rank = file.launch.node_rank;
  if (!is_given("master_addr")) s.launch.master_addr = file.launch.master_addr;
  if (!is_given("master_port")) s.launch.master_port = file.launch.master_port;
  if (!is_given("hostfile")) s.launch.hostfile = file.launch.hostfile;
  words.gives_devices = words.gives_nodes = true;
  if (!trains(words.program[0])) return;
  std::vector<std::string> more = {"--config_file", *other.config_file};
  const bool has_hosts = s.launch.hosts || s.launch.hostfile;  // which are told how many ranks they start
  if ((gives_devices || is_given("nnodes")) && !has_hosts)
    more.insert(more.end(), {"--devices", std::to_string(*s.devices), "--num_nodes", std::to_string(s.num_nodes)});
  words.program.insert(words.program.begin() + 1, more.begin(), more.end());
}

// The others are settings of the launcher that no option sets.
std::vector<std::pair<std::string, std::string>> options_of_settings(const config::Parsed& parsed) {
  const auto typed = [&](std::string_view ours) {
    const std::string theirs(name_in_accelerate(ours));
    return fmt::format("--{}", parsed.typed(theirs) ? theirs : std::string(ours));
  };
  std::vector<std::pair<std::string, std::string>> found = {
      {"num_nodes", typed("nnodes")}, {"launch.nnodes", typed("nnodes")}, {"out_dir", "--log_dir"}};
  for (const Taken& taken : kTaken) found.emplace_back(fmt::format("launch.{}", taken.key), typed(taken.key));
  return found;
}

// Whether `key` stands at this place as a word, and not as part of a path or of a longer key.
bool stands_alone(std::string_view text, size_t at, std::string_view key) {
  const auto is_of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '/'; };
  if (at > 0 && (is_of_word(text[at - 1]) || text[at - 1] == '.')) return false;
  const std::string_view rest = text.substr(at + key.size());
  return rest.empty() || !(is_of_word(rest[0]) || (rest[0] == '.' && rest.size() > 1 && is_of_word(rest[1])));
}

std::vector<std::string> options_of(const config::Parsed& parsed, const config::Section& section) {
  std::vector<std::string> options;
  for (const config::Setting& row : section.rows) {
    if (!parsed.given(std::string(row.key)) || launch::is_for_printing(row.key)) continue;
    options.push_back(fmt::format("--{}", row.key));
    options.push_back(config::value_text(row));
  }
  return options;
}

}  // namespace

std::string LaunchWords::in_own_words(const std::string& sentence) const {
  if (sentence.find("(trireme launch: ") != std::string::npos) return sentence;
  std::string said = sentence;
  for (const auto& [key, option] : options_of_settings)
    for (size_t at = 0; (at = said.find(key, at)) != std::string::npos;) {
      if (!stands_alone(said, at, key)) {
        at += key.size();
        continue;
      }
      const bool has_dashes = at >= 2 && said.compare(at - 2, 2, "--") == 0;
      const size_t begin = has_dashes ? at - 2 : at;
      said.replace(begin, key.size() + (has_dashes ? 2 : 0), option);
      at = begin + option.size();
    }
  return said;
}

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
  const std::vector<std::string> typed = with_counts(arguments);
  config::Parsed parsed = config::parse(
      typed, {.command = "launch",
              .positional = "",
              .takes_rest = true,
              .own = {options},
              .inherited = [](const config::Parsed& said) { return given_by_variables(said, std::getenv); }});
  if (parsed.help) return std::nullopt;
  words.program = std::move(parsed.list);
  if (words.program.empty())
    throw UsageError("error: trireme launch needs a program\n  trireme launch --nproc_per_node 4 -- ./my_program");
  words.program[0] = whole_name(words.program[0]);
  words.notes = notes_on_variables(std::getenv);
  take_nodes(parsed, other, s);
  s.out_dir = words.log_dir.value_or(".");
  s.devices = other.nproc_per_node.value_or(std::max(1U, std::thread::hardware_concurrency()));
  words.gives_devices = is_typed(parsed, "nproc_per_node");
  words.gives_nodes = is_typed(parsed, "nnodes");
  if (other.config_file) {
    take_file(parsed, other, words);
  } else if (other.num_processes) {
    take_processes(*other.num_processes, s);
    words.gives_devices = true;
  }
  words.options = options_of(parsed, options);
  words.options_of_settings = options_of_settings(parsed);
  return words;
}

}  // namespace trireme::cli
