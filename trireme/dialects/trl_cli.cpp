#include "trireme/dialects/trl_cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/files.h"

namespace trireme::dialects {

using config::Given;

namespace {

using Pairs = std::vector<std::pair<std::string_view, std::string_view>>;

struct NamedConfig {
  std::string_view name;
  Pairs keys;  ///< besides those of all
};

// trl/accelerate_configs/*.yaml, without what Accelerate's table ignores.
const std::vector<NamedConfig>& named_configs() {
  static const std::vector<NamedConfig> kConfigs = {
      {"fsdp1",
       {{"distributed_type", "FSDP"},
        {"fsdp_config.fsdp_version", "1"},
        {"fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
        {"fsdp_config.fsdp_backward_prefetch", "BACKWARD_PRE"},
        {"fsdp_config.fsdp_forward_prefetch", "true"},
        {"fsdp_config.fsdp_reshard_after_forward", "FULL_SHARD"}}},
      {"fsdp2",
       {{"distributed_type", "FSDP"},
        {"fsdp_config.fsdp_version", "2"},
        {"fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
        {"fsdp_config.fsdp_reshard_after_forward", "true"}}},
      {"multi_gpu", {{"distributed_type", "MULTI_GPU"}}},
      {"single_gpu", {{"distributed_type", "NO"}}},
      {"zero1", {{"distributed_type", "DEEPSPEED"}, {"deepspeed_config.zero_stage", "1"}}},
      {"zero2", {{"distributed_type", "DEEPSPEED"}, {"deepspeed_config.zero_stage", "2"}}},
      {"zero3", {{"distributed_type", "DEEPSPEED"}, {"deepspeed_config.zero_stage", "3"}}}};
  return kConfigs;
}

// The file of this name in TRL's package.
std::optional<config::ForeignFile> config_of_trl(const Given& entry) {
  const auto found = std::ranges::find(named_configs(), entry.text, &NamedConfig::name);
  if (found == named_configs().end()) return std::nullopt;
  config::ForeignFile file{std::string(accelerate().name), fmt::format("TRL's {}.yaml", entry.text), {}};
  Pairs keys = {{"mixed_precision", "bf16"}, {"num_machines", "1"}, {"num_processes", "8"}};
  keys.insert(keys.end(), found->keys.begin(), found->keys.end());
  for (const auto& [key, text] : keys)
    file.entries.push_back({.key = std::string(key), .text = std::string(text), .source = entry.source});
  return file;
}

}  // namespace

void trl_launcher(Reading& r) {
  const Given *config = r.find("accelerate_config"), *processes = r.find("num_processes");
  if (processes != nullptr && !r.count(processes->key)) return;  // refused
  if (config == nullptr) {
    if (processes == nullptr) return;
    const int64_t nodes = std::max<int64_t>(r.known_count("num_nodes").value_or(1), 1),
                  total = r.count(processes->key).value_or(1);
    if (total < 1 || total % nodes != 0)
      return r.refuse(*processes, fmt::format("num_processes {} is no number of ranks on {} machines", total, nodes),
                      "it counts the ranks of all machines");
    return r.set("devices", std::to_string(total / nodes), *processes);
  }
  auto file = config_of_trl(*config);
  if (base::is_file(config->text)) file = r.named_file(accelerate(), config->text, *config);
  if (r.is_settled(*config)) return;  // refused
  if (!file) {
    std::string names;
    for (const NamedConfig& one : named_configs()) names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
    return r.refuse(*config, fmt::format("{} is no file, and none of TRL's configurations", config->text),
                    fmt::format("there are {}; or give the path of Accelerate's file", names));
  }
  if (processes != nullptr) {  // accelerate launch takes it in place of the file's
    std::erase_if(file->entries, [](const Given& given) { return given.key == "num_processes"; });
    file->entries.push_back(*processes);
    r.tell(*processes, "that of accelerate_config");
  }
  r.include(accelerate(), *file);
  r.forget_defaults_but({"strategy", "devices"});  // the trainer has defaults of its own
  r.tell(*config, fmt::format("the {} keys of {}", file->entries.size(), file->name));
}

void trl_dataset(Reading& r, const Given& entry) {
  const Given* mixture = r.find("datasets");
  const bool has_mixture = mixture != nullptr && mixture->text != "[]";
  if (entry.key == "dataset_name" && has_mixture) return r.ignore(entry, "datasets counts");
  if (entry.key == "datasets" && !has_mixture) return r.ignore(entry, "it names none");
  const bool is_list = entry.kind == Given::Kind::list;
  const std::string name = !is_list ? entry.text : entry.items.size() == 1 ? entry.items[0] : "";
  const bool is_file = !name.starts_with('{') && (name.ends_with(".jsonl") || name.ends_with(".json"));
  if (is_file) return r.set("grpo.prompts", name, entry);
  if (r.is_given("grpo.prompts")) return r.ignore(entry, "grpo.prompts names the file");
  r.refuse(entry, fmt::format("nothing is downloaded, so there is no dataset {}", entry.text),
           "name a file of prompts, JSON in each line, with --grpo.prompts");
}

std::vector<Row> trl_cli_rows() {
  using enum Takes;
  return {
      {.key = "num_processes", .takes = count, .becomes = "devices: its share of num_nodes"},
      {.key = "accelerate_config",
       .takes = text,
       .becomes =
           "the keys of that Accelerate file, or of TRL's own fsdp1, fsdp2, multi_gpu, single_gpu, zero1, zero2, "
           "zero3"},
      {.key = "datasets", .becomes = "grpo.prompts, if it is one file", .by = trl_dataset},
      {.key = "streaming", .takes = flag, .ignored = "prompts are a file"},
      {.key = "test_split_size", .takes = number, .refused = "name held-out prompts with grpo.val_prompts"},
      {.key = "env.*", .ignored = "variables are set before the command: NAME=VALUE trireme ..."},
  };
}

}  // namespace trireme::dialects
