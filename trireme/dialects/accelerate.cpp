// Accelerate's YAML (`accelerate config` writes it, `accelerate launch --config_file` reads it). Keys, defaults and
// meanings: Accelerate 1.15 (commands/config/cluster.py, commands/launch.py, utils/launch.py, utils/dataclasses.py).
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/dialects/deepspeed_rules.h"
#include "trireme/dialects/systems.h"

namespace trireme::dialects {
namespace {

using config::Given;

constexpr std::string_view kUnread[] = {"NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM", "TP"};
constexpr std::string_view kFsdp = "fsdp_config.fsdp_";
constexpr std::string_view kDeepSpeed = "deepspeed_config.";
constexpr std::string_view kMegatron = "megatron_lm_config.megatron_lm_";
constexpr std::string_view kParallel = "parallelism_config.parallelism_config_";

std::string in(std::string_view head, std::string_view name) { return std::string(head) + std::string(name); }

// num_processes counts the ranks of all machines.
void processes(Reading& r, const Given& entry) {
  const int64_t total = *r.count(entry.key), machines = std::max<int64_t>(r.count("num_machines").value_or(1), 1);
  if (total < 1)
    return r.refuse(entry, fmt::format("num_processes {} is not a number of ranks", entry.text), "say --devices N");
  if (total % machines != 0)
    return r.refuse_both(entry, *r.find("num_machines"),
                         fmt::format("{} processes cannot be divided among {} machines", total, machines),
                         "num_processes counts the ranks of all machines");
  r.set("devices", std::to_string(total / machines), entry);
}

void machine_rank(Reading& r, const Given& entry) {
  if (r.count("num_machines").value_or(1) > 1) return r.set("launch.node_rank", entry.text, entry);
  r.ignore(entry, "there is one machine");
}

void precision(Reading& r, const Given& entry) {
  const std::string name = lower(entry.text);
  if (name == "no" || name == "false") return r.set("precision", "32-true", entry);
  if (name == "bf16") return r.set("precision", "bf16-mixed", entry);
  if (name == "fp16" && r.can("precision", "16-mixed")) return r.set("precision", "16-mixed", entry);
  if (name == "fp16") return r.refuse_open(entry, "precision 16-mixed; take bf16 or no");
  if (name == "fp8") return r.refuse_open(entry, "8-bit floats; take bf16 or no");
  r.refuse(entry, fmt::format("mixed_precision {} is not one of no, fp16, bf16 and fp8", entry.text), "");
}

void old_fp16(Reading& r, const Given& entry) {
  if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
  if (!r.can("precision", "16-mixed"))
    return r.refuse_open(entry, "precision 16-mixed; take mixed_precision bf16 or no");
  r.set("precision", "16-mixed", entry);
}

void gpu_ids(Reading& r, const Given& entry) {
  if (lower(entry.text) == "all") return r.ignore(entry, "ranks take the first GPUs");
  r.ignore(entry, "GPUs are chosen with CUDA_VISIBLE_DEVICES; ranks on processors have none");
}

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
  r.ignore(entry, is_read ? "fsdp_auto_wrap_policy reads it" : "only SIZE_BASED_WRAP reads it");
}

void recompute_if(Reading& r, const Given& entry) {
  r.flag(entry.key) ? r.set("recompute", "full", entry) : r.ignore(entry, "it is off");
}

void context(Reading& r, const Given& entry) {
  const bool ulysses = entry.key.ends_with("_sp_size");
  if (r.count(entry.key).value_or(1) <= 1) return r.ignore(entry, "it is off");
  r.set("mesh.cp", entry.text, entry);
  r.set("mesh.context", ulysses ? "ulysses" : "ring", entry);
}

void copies_of(Reading& r, const Given& entry) {  // dp_replicate_size x dp_shard_size; finish sets the strategy
  if (r.count(entry.key).value_or(0) < 1)
    return r.refuse(entry, fmt::format("{} must be at least 1, not {}", entry.key, entry.text), "");
  const bool replicate = entry.key.ends_with("replicate_size");
  if (replicate && r.count(entry.key) == 1) return r.ignore(entry, "there is one copy of the weights");
  r.set(replicate ? "mesh.replicate" : "mesh.shard", entry.text, entry);
}

void clip(Reading& r, const Given& entry) { ds::clip(r, entry); }

void selective(Reading& r, const Given& entry) {
  if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
  r.set("recompute", "selective", entry);
  r.set("recompute.values", "[attended]", entry);
}

// Refuses inline keys beside a DeepSpeed file, as Accelerate does, and reads the file.
void deepspeed_file(Reading& r, const Given& entry, config::Problems& problems) {
  constexpr std::string_view kInline[] = {
      "zero_stage",           "gradient_accumulation_steps", "gradient_clipping",       "offload_optimizer_device",
      "offload_param_device", "offload_optimizer_nvme_path", "offload_param_nvme_path", "zero3_save_16bit_model"};
  for (const std::string_view key : kInline)
    if (const Given* both = r.find(in(kDeepSpeed, key)); both != nullptr)
      r.refuse_both(entry, *both, fmt::format("deepspeed_config_file has its own {}", key), "keep one of the two");
  const auto file = read_named_file(deepspeed(), entry.text, problems);
  if (!file) return r.refuse(entry, fmt::format("the DeepSpeed file {} cannot be read", entry.text), "");
  r.include(deepspeed(), *file);
  r.tell(entry, fmt::format("its {} keys follow", file->entries.size()));
}

void deepspeed_inline(Reading& r) {
  const Given* stage = r.find(in(kDeepSpeed, "zero_stage"));
  if (stage == nullptr)
    r.suggest("strategy", "shard_grad_op");  // Accelerate's default is stage 2
  else
    ds::stage(r, *stage);
  const std::string steps = in(kDeepSpeed, "gradient_accumulation_steps");
  ds::set_batch(r, "", "", steps);
  if (!r.has(steps)) {  // the default is 1
    constexpr int64_t kMost = int64_t{1} << 40;
    const int64_t micro = std::clamp<int64_t>(r.known_count("train.micro_batch_size").value_or(1), 1, kMost);
    r.suggest("train.global_batch_size", std::to_string(micro * r.data_ranks()));
  }
}

void fsdp_strategy(Reading& r) {
  const int64_t machines = r.known_count("num_nodes").value_or(1);
  const Given* reshard = r.find(in(kFsdp, "reshard_after_forward"));
  const Given* sharding = r.find(in(kFsdp, "sharding_strategy"));
  const int64_t replicate = r.known_count("mesh.replicate").value_or(1);
  const int64_t version = r.count(in(kFsdp, "version")).value_or(1);
  const Given* entry = sharding != nullptr ? sharding : reshard;
  std::string name = entry == nullptr ? "full_shard" : lower(entry->text);
  if (version == 2 && sharding != nullptr && reshard != nullptr) {
    r.ignore(*sharding, "version 2 reads fsdp_reshard_after_forward");
    entry = reshard, name = lower(reshard->text);
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

void megatron(Reading& r) {
  const Given* divides = r.find(in(kMegatron, "use_distributed_optimizer"));
  if (divides == nullptr)
    r.suggest("strategy", "no_shard");
  else
    r.set("strategy", r.flag(divides->key) ? "zero1" : "no_shard", *divides);
  ds::set_batch(r, "", "", in(kMegatron, "num_micro_batches"));
  if (r.find(in(kMegatron, "gradient_clipping")) == nullptr) r.suggest("train.max_norm", "1.0");
}

void finish_accelerate(Reading& r) {
  const Given* type = r.find("distributed_type");
  if (type == nullptr) {
    r.problems().add("the Accelerate file has no distributed_type", {},
                     fmt::format("it is one of {}", fmt::join(kUnread, ", ")));
    return r.ignore_rest("there is no distributed_type");
  }
  const std::string name = lower(type->text);
  if (std::ranges::none_of(kUnread, [&](std::string_view one) { return lower(one) == name; })) {
    r.refuse(*type, fmt::format("distributed_type {} is not for processors or NVIDIA GPUs", type->text),
             fmt::format("there are {}", fmt::join(kUnread, ", ")));
    return;
  }
  if (r.find(in(kParallel, "dp_replicate_size")) != nullptr &&
      r.count(in(kParallel, "dp_replicate_size")).value_or(1) > 1 &&
      r.count(in(kParallel, "dp_shard_size")).value_or(1) == 1) {
    r.refuse(*r.find(in(kParallel, "dp_replicate_size")), "copies of whole weights are not FSDP",
             "Accelerate has MULTI_GPU for them: leave parallelism_config out");
    return;
  }
  const Given* file = r.find("deepspeed_config.deepspeed_config_file");
  if (name == "no" || name == "multi_gpu" || name == "multi_cpu" || name == "tp") {
    r.set("strategy", "no_shard", *type);
  } else if (name == "fsdp") {
    r.tell(*type, "strategy, from fsdp_config");
    fsdp_strategy(r);
  } else if (name == "deepspeed") {
    r.tell(*type, "strategy, from deepspeed_config");
    file != nullptr ? deepspeed_file(r, *file, r.problems()) : deepspeed_inline(r);
  } else {
    r.tell(*type, "strategy, from megatron_lm_config");
    megatron(r);
  }
  if (name == "no" && r.find("num_processes") == nullptr) r.suggest("devices", "1");
  r.ignore_rest(fmt::format("distributed_type {} does not read it", type->text));
}

}  // namespace

const Dialect& accelerate() {
  using enum Takes;
  constexpr std::string_view kTpu = "there are no TPUs";
  constexpr std::string_view kWeights = "each rank reads the weights that it owns";
  constexpr std::string_view kOffload = "state and weights in host memory or on disk: leave it out, or say none";
  constexpr std::string_view kCheckpoint = "a checkpoint is one folder with whole weights, which any mesh loads";
  constexpr std::string_view kStrategy = "strategy";
  constexpr std::string_view kModel = "the model's own setting counts";
  static const Dialect kDialect{
      .name = "accelerate",
      .system = "Accelerate",
      .about =
          "The YAML of `accelerate config`: `trireme pretrain MODEL --config fsdp.yaml`, or `trireme launch "
          "--config_file fsdp.yaml -- pretrain MODEL` as with `accelerate launch`. What the script decides there, "
          "such as batches and the optimizer, is given by Trireme's settings.",
      .marks = {"compute_environment", "distributed_type", "fsdp_config", "deepspeed_config", "megatron_lm_config",
                "parallelism_config", "num_processes", "main_process_ip"},
      .file_options = {"config_file"},
      .rows =
          {
              {.key = "compute_environment",
               .takes = text,
               .refused = "commands run on machines that you name",
               .off = {"LOCAL_MACHINE"}},
              {.key = "distributed_type",
               .takes = text,
               .becomes = "strategy: NO, MULTI_GPU, MULTI_CPU no_shard; FSDP, DEEPSPEED, MEGATRON_LM from their maps"},
              {.key = "mixed_precision",
               .takes = text,
               .becomes = "precision: no 32-true, bf16 bf16-mixed, fp16 16-mixed",
               .by = precision},
              {.key = "fp16", .takes = flag, .becomes = "precision 16-mixed (the old form)", .by = old_fp16},
              {.key = "use_cpu", .takes = flag, .ignored = "accelerator says what ranks compute on"},
              {.key = "debug", .takes = flag, .ignored = "collectives are always compared between ranks"},
              {.key = "num_processes",
               .takes = count,
               .becomes = "devices: its share of num_machines",
               .by = processes},
              {.key = "num_machines", .takes = count, .setting = "num_nodes"},
              {.key = "machine_rank", .takes = count, .becomes = "launch.node_rank", .by = machine_rank},
              {.key = "gpu_ids", .becomes = "nothing: CUDA_VISIBLE_DEVICES chooses GPUs", .by = gpu_ids},
              {.key = "main_process_ip", .takes = text, .setting = "launch.master_addr"},
              {.key = "main_process_port", .takes = count, .setting = "launch.master_port"},
              {.key = "rdzv_backend", .takes = text, .ignored = "launchers have a store of their own"},
              {.key = "same_network", .takes = flag, .ignored = "ranks meet at launch.master_addr"},
              {.key = "main_training_function", .takes = text, .ignored = "the subcommand is what runs"},
              {.key = "enable_cpu_affinity", .takes = flag, .setting = "launch.pin"},
              {.key = "downcast_bf16", .takes = text, .ignored = kTpu},
              {.key = "tpu_name", .takes = text, .ignored = kTpu},
              {.key = "tpu_zone", .takes = text, .ignored = kTpu},
              {.key = "tpu_use_cluster", .takes = flag, .refused = kTpu},
              {.key = "tpu_use_sudo", .takes = flag, .ignored = kTpu},
              {.key = "tpu_vm", .ignored = kTpu},
              {.key = "tpu_env", .ignored = kTpu},
              {.key = "command_file", .takes = text, .ignored = kTpu},
              {.key = "commands", .ignored = kTpu},
              {.key = "dynamo_config.*", .ignored = "nothing is compiled at run time here"},
              {.key = "fp8_config.*", .ignored = "only mixed_precision fp8 reads it"},
              {.key = "mpirun_config.*", .ignored = "mpirun starts trireme itself: docs/launching.md"},
              {.key = "ipex_config.*", .ignored = "kernels are Trireme's own"},
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
              {.key = "fsdp_config.fsdp_offload_params", .takes = flag, .open = kOffload},
              {.key = "fsdp_config.fsdp_state_dict_type", .takes = text, .ignored = kCheckpoint},
              {.key = "fsdp_config.fsdp_use_orig_params",
               .takes = flag,
               .ignored = "parameters always keep their names"},
              {.key = "fsdp_config.fsdp_sync_module_states", .takes = flag, .ignored = kWeights},
              {.key = "fsdp_config.fsdp_cpu_ram_efficient_loading", .takes = flag, .ignored = kWeights},
              {.key = "fsdp_config.fsdp_activation_checkpointing",
               .takes = flag,
               .becomes = "recompute full",
               .by = recompute_if},
              {.key = "fsdp_config.fsdp_activation_checkpointing_offload", .takes = flag, .open = kOffload},
              {.key = "fsdp_config.fsdp_ignored_modules",
               .takes = text,
               .refused = "all parameters are divided alike; leave it out"},
              {.key = "deepspeed_config.deepspeed_config_file",
               .takes = text,
               .becomes = "the keys of that DeepSpeed file"},
              {.key = "deepspeed_config.zero_stage",
               .takes = count,
               .becomes = "strategy: 0 no_shard, 1 zero1, 2 shard_grad_op, 3 full_shard"},
              {.key = "deepspeed_config.gradient_accumulation_steps",
               .takes = count,
               .becomes = "train.global_batch_size = train.micro_batch_size x it x data-parallel ranks",
               .automatic = "train.global_batch_size is left"},
              {.key = "deepspeed_config.gradient_clipping",
               .takes = number,
               .becomes = "train.max_norm",
               .by = clip,
               .automatic = "train.max_norm is left"},
              {.key = "deepspeed_config.offload_optimizer_device", .takes = text, .open = kOffload},
              {.key = "deepspeed_config.offload_param_device", .takes = text, .open = kOffload},
              {.key = "deepspeed_config.offload_optimizer_nvme_path", .takes = text, .ignored = "nothing is offloaded"},
              {.key = "deepspeed_config.offload_param_nvme_path", .takes = text, .ignored = "nothing is offloaded"},
              {.key = "deepspeed_config.zero3_init_flag", .takes = flag, .ignored = kWeights},
              {.key = "deepspeed_config.zero3_save_16bit_model", .takes = flag, .ignored = kCheckpoint},
              {.key = "deepspeed_config.deepspeed_multinode_launcher",
               .takes = text,
               .ignored = "machines are started by ssh (launch.hosts), or each with its own command"},
              {.key = "deepspeed_config.deepspeed_hostfile", .takes = text, .setting = "launch.hostfile"},
              {.key = "deepspeed_config.deepspeed_inclusion_filter", .takes = text, .setting = "launch.include"},
              {.key = "deepspeed_config.deepspeed_exclusion_filter", .takes = text, .setting = "launch.exclude"},
              {.key = "deepspeed_config.deepspeed_moe_layer_cls_names", .open = "mixtures of experts; leave it out"},
              {.key = "parallelism_config.parallelism_config_dp_replicate_size",
               .takes = count,
               .becomes = "mesh.replicate, with hybrid_shard",
               .by = copies_of},
              {.key = "parallelism_config.parallelism_config_dp_shard_size",
               .takes = count,
               .becomes = "mesh.shard",
               .by = copies_of},
              {.key = "parallelism_config.parallelism_config_tp_size", .takes = count, .setting = "mesh.tp"},
              {.key = "parallelism_config.parallelism_config_cp_size",
               .takes = count,
               .becomes = "mesh.cp, with mesh.context ring",
               .by = context},
              {.key = "parallelism_config.parallelism_config_cp_backend", .takes = text, .ignored = "there is one"},
              {.key = "parallelism_config.parallelism_config_cp_comm_strategy",
               .takes = text,
               .ignored = "keys and values travel around the ranks: mesh.context ring"},
              {.key = "parallelism_config.parallelism_config_sp_size",
               .takes = count,
               .becomes = "mesh.cp, with mesh.context ulysses",
               .by = context},
              {.key = "parallelism_config.parallelism_config_sp_backend", .takes = text, .ignored = "there is one"},
              {.key = "parallelism_config.parallelism_config_sp_seq_length",
               .takes = count,
               .setting = "train.max_seq_length"},
              {.key = "parallelism_config.parallelism_config_sp_seq_length_is_variable",
               .takes = flag,
               .ignored = "samples have one length"},
              {.key = "parallelism_config.parallelism_config_sp_attn_implementation",
               .takes = text,
               .ignored = "attention has one implementation"},
              {.key = "megatron_lm_config.megatron_lm_tp_degree", .takes = count, .setting = "mesh.tp"},
              {.key = "megatron_lm_config.megatron_lm_pp_degree", .takes = count, .setting = "mesh.pp"},
              {.key = "megatron_lm_config.megatron_lm_context_parallel_size", .takes = count, .setting = "mesh.cp"},
              {.key = "megatron_lm_config.megatron_lm_num_micro_batches",
               .takes = count,
               .becomes = "train.global_batch_size = train.micro_batch_size x it x data-parallel ranks"},
              {.key = "megatron_lm_config.megatron_lm_gradient_clipping",
               .takes = number,
               .becomes = "train.max_norm",
               .by = clip},
              {.key = "megatron_lm_config.megatron_lm_sequence_parallelism",
               .takes = flag,
               .becomes = "mesh.sequence_parallel, with mesh.tp above 1",
               .by =
                   [](Reading& r, const Given& entry) {
                     const bool counts = r.flag(entry.key) && r.count(in(kMegatron, "tp_degree")).value_or(1) > 1;
                     counts ? r.set("mesh.sequence_parallel", "true", entry) : r.ignore(entry, "it is off");
                   }},
              {.key = "megatron_lm_config.megatron_lm_recompute_activations",
               .takes = flag,
               .becomes = "recompute selective, with recompute.values [attended]",
               .by = selective},
              {.key = "megatron_lm_config.megatron_lm_use_distributed_optimizer",
               .takes = flag,
               .becomes = "strategy: true zero1, false no_shard"},
              {.key = "megatron_lm_config.megatron_lm_expert_model_parallel_size",
               .takes = count,
               .open = "mixtures of experts; say 1",
               .off = {"1"}},
              {.key = "megatron_lm_config.megatron_lm_expert_tensor_parallel_size",
               .takes = count,
               .open = "mixtures of experts; say 1",
               .off = {"1"}},
              {.key = "megatron_lm_config.megatron_lm_optimizer_cpu_offload", .takes = flag, .open = kOffload},
              {.key = "megatron_lm_config.megatron_lm_attention_dropout", .takes = number, .open = "dropout; say 0"},
              {.key = "megatron_lm_config.megatron_lm_hidden_dropout", .takes = number, .open = "dropout; say 0"},
              {.key = "megatron_lm_config.*", .ignored = kModel},
          },
      .finish = finish_accelerate};
  return kDialect;
}

}  // namespace trireme::dialects
