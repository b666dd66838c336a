#include "trireme/dialects/offload.h"

#include <fmt/format.h>

#include <string>

namespace trireme::dialects {

using config::Given;

namespace {

struct Moves {
  bool optimizer = false, parameters = false, activations = false;
};

struct Key {
  std::string_view key;
  Moves moves;
  bool is_device;  ///< none, cpu or nvme; else a flag
};

constexpr Moves kOptimizer{.optimizer = true}, kParameters{.parameters = true}, kActivations{.activations = true},
    kState{.optimizer = true, .parameters = true};

constexpr Key kKeys[] = {
    {"zero_optimization.cpu_offload", kOptimizer, false},
    {"zero_optimization.cpu_offload_param", kParameters, false},
    {"zero_optimization.cpu_offload_params", kParameters, false},
    {"zero_optimization.offload_optimizer.device", kOptimizer, true},
    {"zero_optimization.offload_param.device", kParameters, true},
    {"activation_checkpointing.cpu_checkpointing", kActivations, false},
    {"deepspeed_config.offload_optimizer_device", kOptimizer, true},
    {"deepspeed_config.offload_param_device", kParameters, true},
    {"megatron_lm_config.megatron_lm_optimizer_cpu_offload", kOptimizer, false},
    {"fsdp_config.fsdp_offload_params", kState, false},
    {"fsdp_config.fsdp_activation_checkpointing_offload", kActivations, false},
    {"cpu_offload", kState, false},
    {"distributed.cpu_offload", kState, false},
};

constexpr std::string_view kPaths[] = {
    "zero_optimization.offload_optimizer.nvme_path", "zero_optimization.offload_param.nvme_path",
    "deepspeed_config.offload_optimizer_nvme_path", "deepspeed_config.offload_param_nvme_path"};

constexpr std::string_view kRatio = "zero_optimization.offload_optimizer.ratio";
constexpr std::string_view kDepth = "aio.queue_depth";

// The tier that an entry asks for; empty: it asks for none, or is refused.
std::string tier_of(Reading& r, const Key& key, const Given& entry) {
  if (!key.is_device) return r.flag(key.key) ? "cpu" : "";
  const std::string device = lower(entry.text);
  if (device == "cpu") return "cpu";
  if (device == "nvme") return "disk";
  if (device != "none")
    r.refuse(entry, fmt::format("{} {} is no device", entry.key, entry.text), "there are none, cpu and nvme");
  return "";
}

}  // namespace

void finish_offload(Reading& r) {
  const std::string strategy = r.known("strategy").value_or("full_shard");
  const bool divides_weights = strategy == "full_shard" || strategy == "hybrid_shard";
  const bool divides_gradients = strategy != "no_shard" && strategy != "zero1";
  bool leaves = false, to_disk = false;
  for (const Key& key : kKeys) {
    const Given* entry = r.find(key.key);
    if (entry == nullptr || r.is_settled(*entry)) continue;
    const std::string tier = tier_of(r, key, *entry);
    if (r.is_settled(*entry)) continue;
    if (tier.empty()) {
      r.ignore(*entry, "nothing leaves");
      continue;
    }
    if (key.moves.optimizer) {
      r.set("offload.optimizer", tier, *entry);
      r.set("offload.master", tier, *entry);
      if (divides_gradients) r.set("offload.gradients", tier, *entry);
    }
    if (key.moves.parameters && divides_weights) r.set("offload.parameters", tier, *entry);
    if (key.moves.activations) r.set("offload.activations", tier, *entry);
    if (!r.is_settled(*entry)) {
      r.ignore(*entry, "only stage 3 reads it");
      continue;
    }
    leaves = true;
    to_disk |= tier == "disk";
  }
  const Given* path = nullptr;
  for (const std::string_view key : kPaths)
    if (const Given* entry = r.find(key)) {
      if (to_disk && path != nullptr && path->text != entry->text)
        r.refuse_both(*path, *entry, "all that leaves goes to one folder", "give both the same nvme_path");
      else if (to_disk)
        r.set("offload.path", entry->text, *entry);
      else
        r.ignore(*entry, "nothing goes to a disk");
      path = entry;
    }
  if (const Given* entry = r.find(kDepth)) {
    if (const auto depth = r.count(kDepth); to_disk && depth)  // without one it has been refused
      r.set("offload.buffers", std::to_string(*depth), *entry);
    else if (!to_disk)
      r.ignore(*entry, "nothing goes to a disk");
  }
  if (const Given* entry = r.find(kRatio)) {
    const Given* parameters = r.find("zero_optimization.offload_param.device");
    if (leaves && parameters != nullptr && lower(parameters->text) != "none" && r.number(kRatio).value_or(1) != 1)
      r.refuse_both(*entry, *parameters,
                    "offload_optimizer.ratio is of the optimizer alone, and offload.ratio of all that leaves",
                    "leave one of the two out");
    else if (leaves)
      r.set("offload.ratio", entry->text, *entry);
    else
      r.ignore(*entry, "nothing leaves");
  }
}

}  // namespace trireme::dialects
