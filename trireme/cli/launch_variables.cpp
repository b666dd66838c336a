#include "trireme/cli/launch_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/shared_library.h"

namespace trireme::cli {
namespace {

constexpr std::string_view kEndpoint = "launchers meet by rdzv_endpoint alone";
constexpr std::string_view kNoPython = "programs never are Python here";

constexpr TorchrunOption kOptions[] = {
    {.name = "nproc_per_node"},
    {.name = "nnodes", .is_about_machines = true},
    {.name = "node_rank", .is_about_machines = true},
    {.name = "master_addr", .is_about_machines = true},
    {.name = "master_port", .is_about_machines = true},
    {.name = "rdzv_endpoint", .is_about_machines = true},
    {.name = "rdzv_backend", .is_about_machines = true},
    {.name = "standalone", .is_flag = true, .is_about_machines = true},
    {.name = "max_restarts"},
    {.name = "log_dir"},
    {.name = "rdzv_id", .unread = kEndpoint},
    {.name = "rdzv_conf", .unread = kEndpoint},
    {.name = "monitor_interval", .unread = "the end of a rank is seen at once"},
    {.name = "start_method", .unread = "ranks are programs"},
    {.name = "role", .unread = "all ranks have one role"},
    {.name = "redirects", .unread = "log_dir keeps the output of all ranks"},
    {.name = "tee", .unread = "log_dir and log_ranks say whose output is shown"},
    {.name = "local_ranks_filter", .unread = "log_dir and log_ranks say whose output is shown"},
    {.name = "local_addr", .unread = "the address by which other machines reach this one is found"},
    {.name = "no_python", .unread = kNoPython, .is_word = false},
    {.name = "module", .unread = kNoPython, .is_word = false},
    {.name = "run_path", .unread = kNoPython, .is_word = false},
    {.name = "event_log_handler", .unread = "there are no handlers of events", .is_word = false},
};

constexpr std::pair<std::string_view, std::string_view> kOfAccelerate[] = {{"machine_rank", "node_rank"},
                                                                           {"main_process_ip", "master_addr"},
                                                                           {"main_process_port", "master_port"},
                                                                           {"num_machines", "nnodes"}};

std::string variable_of(std::string_view option) {
  std::string name = "PET_";
  for (const char c : option) name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// Python's bool(int(text)), which torchrun makes of a flag's variable.
std::string flag_of(const std::string& text) { return text == "1" ? "true" : text == "0" ? "false" : text; }

std::string num_gpus_here() {
  if (const int count = base::num_gpus(); count > 0) return std::to_string(count);
  throw UsageError(
      "error: gpu as the number of ranks starts one rank for each GPU, and there is none that CUDA_VISIBLE_DEVICES "
      "allows; "
      "give the number of ranks, or cpu for one on each core");
}

}  // namespace

std::span<const TorchrunOption> torchrun_options() { return kOptions; }

std::string_view name_in_accelerate(std::string_view option) {
  const auto* pair = std::ranges::find(kOfAccelerate, option, [](const auto& names) { return names.second; });
  return pair == std::end(kOfAccelerate) ? std::string_view() : pair->first;
}

bool is_typed(const config::Parsed& parsed, std::string_view option) {
  return parsed.typed(std::string(option)) || parsed.typed(std::string(name_in_accelerate(option)));
}

std::string count_of_ranks(const std::string& value) {
  if (value == "gpu" || (value == "auto" && base::num_gpus() > 0)) return num_gpus_here();
  return value == "cpu" ? "auto" : value;
}

std::vector<config::Given> given_by_variables(const config::Parsed& typed, const launch::EnvironmentLookup& lookup) {
  const auto says_one_of = [&](std::initializer_list<const char*> words) {
    return std::ranges::any_of(words, [&](const char* word) { return typed.typed(word); });
  };
  const bool says_machines = says_one_of({"hosts", "hostfile", "standalone", "config_file"});
  const bool says_ranks = says_one_of({"num_processes", "config_file"});
  std::vector<config::Given> given;
  for (const TorchrunOption& option : kOptions) {
    const std::string name = variable_of(option.name);
    const char* value = lookup(name.c_str());
    if (!option.unread.empty() || value == nullptr || *value == '\0' || is_typed(typed, option.name)) continue;
    const bool is_about_ranks = option.name == "nproc_per_node";
    if ((option.is_about_machines && says_machines) || (is_about_ranks && says_ranks)) continue;
    std::string text = option.is_flag ? flag_of(value) : value;
    if (is_about_ranks) text = count_of_ranks(text);
    given.push_back({.key = std::string(option.name),
                     .text = std::move(text),
                     .source = {config::Source::Kind::environment, "environment", fmt::format("{}={}", name, value)}});
  }
  return given;
}

std::vector<std::string> notes_on_variables(const launch::EnvironmentLookup& lookup) {
  std::vector<std::string> notes;
  for (const TorchrunOption& option : kOptions) {
    const std::string name = variable_of(option.name);
    const char* value = lookup(name.c_str());
    const std::string_view text = value == nullptr ? "" : value;
    const bool is_off = text.empty() || text == "0";
    if (!option.unread.empty() && !is_off) notes.push_back(fmt::format("{} has no effect: {}", name, option.unread));
  }
  return notes;
}

}  // namespace trireme::cli
