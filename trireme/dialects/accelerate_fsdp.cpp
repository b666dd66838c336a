// Accelerate's fsdp_config, of both versions. Source: Accelerate 1.15 (utils/dataclasses.py, to_fsdp2.py).
#include <fmt/format.h>

#include <algorithm>

#include "trireme/dialects/accelerate_parts.h"
#include "trireme/dialects/offload.h"
#include "trireme/dialects/reasons.h"

namespace trireme::dialects::accelerate_parts {

using config::Given;

namespace {

constexpr std::string_view kFsdp = "fsdp_config.fsdp_";

void backward_prefetch(Reading& r, const Given& entry) {
  const std::string name = lower(entry.text);
  const std::string_view when = name == "backward_pre" || name == "1"     ? "pre"
                                : name == "backward_post" || name == "2"  ? "post"
                                : name == "no_prefetch" || name == "none" ? "none"
                                                                          : "";
  if (when.empty())
    return r.refuse(entry, fmt::format("there is no {} {}", entry.key, entry.text),
                    "there are BACKWARD_PRE, BACKWARD_POST and NO_PREFETCH");
  r.set("schedule.prefetch_backward", when, entry);
}

void wrap(Reading& r, const Given& entry) {
  const std::string name = lower(entry.text);
  if (name == "transformer_based_wrap") return r.set("wrap.by", "block", entry);
  if (name == "size_based_wrap")
    return r.set("wrap.min_num_params", std::to_string(r.count(in(kFsdp, "min_num_params")).value_or(100'000'000)),
                 entry);
  if (name == "no_wrap" || name == "none") return r.set("wrap.min_num_params", "1000000000000000", entry);
  r.refuse(entry, fmt::format("there is no {} {}", entry.key, entry.text),
           "there are TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP and NO_WRAP");
}

void min_num_params(Reading& r, const Given& entry) {
  const bool is_read = lower(r.text(in(kFsdp, "auto_wrap_policy"))) == "size_based_wrap";
  is_read ? r.tell(entry, "wrap.min_num_params") : r.ignore(entry, "only SIZE_BASED_WRAP reads it");
}

void recompute_if(Reading& r, const Given& entry) {
  r.flag(entry.key) ? r.set("recompute", "full", entry) : r.ignore(entry, "it is off");
}

}  // namespace

std::vector<Row> fsdp_rows() {
  using enum Takes;
  constexpr std::string_view kStrategy = "strategy";
  return {
      {.key = "fsdp_config.fsdp_version", .takes = count, .ignored = "both versions are read"},
      {.key = "fsdp_config.fsdp_sharding_strategy", .takes = text, .becomes = kStrategy},
      {.key = "fsdp_config.fsdp_reshard_after_forward",
       .takes = text,
       .becomes = "strategy: true full_shard, false shard_grad_op; with version 1 a strategy"},
      {.key = "fsdp_config.fsdp_auto_wrap_policy",
       .takes = text,
       .becomes = "wrap.by block; SIZE_BASED_WRAP and NO_WRAP wrap.min_num_params",
       .by = wrap},
      {.key = "fsdp_config.fsdp_min_num_params",
       .takes = count,
       .becomes = "wrap.min_num_params, with SIZE_BASED_WRAP",
       .by = min_num_params},
      {.key = "fsdp_config.fsdp_transformer_layer_cls_to_wrap",
       .ignored = "the model's blocks are the layers that are wrapped"},
      {.key = "fsdp_config.fsdp_backward_prefetch",
       .takes = text,
       .becomes = "schedule.prefetch_backward: BACKWARD_PRE pre, BACKWARD_POST post, NO_PREFETCH none",
       .by = backward_prefetch},
      {.key = "fsdp_config.fsdp_backward_prefetch_policy",
       .takes = text,
       .becomes = "schedule.prefetch_backward (the old name)",
       .by = backward_prefetch},
      {.key = "fsdp_config.fsdp_forward_prefetch", .takes = flag, .setting = "schedule.prefetch_forward"},
      {.key = "fsdp_config.fsdp_offload_params", .takes = flag, .becomes = kOffloadAll},
      {.key = "fsdp_config.fsdp_state_dict_type", .takes = text, .ignored = kOneFolder},
      {.key = "fsdp_config.fsdp_use_orig_params", .takes = flag, .ignored = "parameters always keep their names"},
      {.key = "fsdp_config.fsdp_sync_module_states", .takes = flag, .ignored = kWeights},
      {.key = "fsdp_config.fsdp_cpu_ram_efficient_loading", .takes = flag, .ignored = kWeights},
      {.key = "fsdp_config.fsdp_activation_checkpointing",
       .takes = flag,
       .becomes = "recompute full",
       .by = recompute_if},
      {.key = "fsdp_config.fsdp_activation_checkpointing_offload", .takes = flag, .becomes = kOffloadActivations},
      {.key = "fsdp_config.fsdp_ignored_modules",
       .takes = text,
       .refused = "all parameters are divided alike; leave it out"},
  };
}

void fsdp_strategy(Reading& r) {
  const int64_t machines = r.known_count("num_nodes").value_or(1);
  const Given* reshard = r.find(in(kFsdp, "reshard_after_forward"));
  const Given* sharding = r.find(in(kFsdp, "sharding_strategy"));
  const int64_t replicate = r.known_count("mesh.replicate").value_or(1);
  const int64_t version = r.count(in(kFsdp, "version")).value_or(1);
  const Given* entry = sharding != nullptr ? sharding : reshard;
  std::string name = entry == nullptr ? "full_shard" : lower(entry->text);
  if (version == 2 && sharding != nullptr) {
    r.ignore(*sharding, "version 2 reads fsdp_reshard_after_forward");
    entry = reshard, name = reshard == nullptr ? "full_shard" : lower(reshard->text);
  } else if (sharding != nullptr && reshard != nullptr) {
    r.ignore(*reshard, "fsdp_sharding_strategy says it");
  }
  constexpr std::string_view kNumbers[] = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
                                           "hybrid_shard_zero2"};
  if (name.size() == 1 && name[0] >= '1' && name[0] <= '5') name = kNumbers[name[0] - '1'];
  if (name == "true") name = "full_shard";
  if (name == "false") name = "shard_grad_op";
  if (std::ranges::find(kNumbers, std::string_view(name)) == std::end(kNumbers))
    return r.refuse(*entry, fmt::format("there is no {} {}", entry->key, entry->text),
                    "there are FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD and HYBRID_SHARD_ZERO2");
  const bool hybrid = name.starts_with("hybrid");
  if (hybrid && machines == 1 && replicate == 1) name = name == "hybrid_shard" ? "full_shard" : "shard_grad_op";
  if (!hybrid && replicate > 1 && name != "no_shard")
    name = name == "full_shard" ? "hybrid_shard" : "hybrid_shard_zero2";
  entry == nullptr ? r.suggest("strategy", name) : r.set("strategy", name, *entry);
}

}  // namespace trireme::dialects::accelerate_parts
