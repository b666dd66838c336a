// DeepSpeed's zero_optimization: the keys, and what stages, buckets and groups of ranks mean here. Source: DeepSpeed
// 0.19 (deepspeed/runtime/zero/config.py, offload_config.py).
#include <fmt/format.h>

#include "trireme/base/units.h"
#include "trireme/dialects/deepspeed_parts.h"
#include "trireme/dialects/offload.h"
#include "trireme/dialects/reasons.h"

namespace trireme::dialects::ds {

using config::Given;

namespace {

constexpr std::string_view kHeld = "host memory is planned and held";
constexpr std::string_view kIsMap = "it is a map of settings: {\"device\": \"cpu\"}";
constexpr std::string_view kCopies = "copies are planned: offload.prefetch says how early they are made";
constexpr std::string_view kOwnThreads = "updates run where the rank computes, not on cores of their own";
constexpr std::string_view kQuantized = "quantised communication (ZeRO++); leave it out";
constexpr std::string_view kStages[] = {"no_shard", "zero1", "shard_grad_op", "full_shard"};

// Ranks of a copy of the weights, if the file asks for several copies.
const Given* copies(const Reading& r) {
  for (const std::string_view key : {"zero_optimization.mics_shard_size", "zero_optimization.zero_hpz_partition_size"})
    if (r.count(key).value_or(1) > 1) return r.find(key);
  return nullptr;
}

void set_strategy(Reading& r, const Given& entry, int64_t stage) {
  if (stage < 0 || stage > 3)
    return r.refuse(entry, fmt::format("{} {} is not a stage", entry.key, entry.text), "stages are 0, 1, 2 and 3");
  const Given* group = copies(r);
  if (group == nullptr) return r.set("strategy", kStages[stage], entry);
  if (stage != 3)
    return r.refuse_both(entry, *group,
                         fmt::format("{} divides weights, and stage {} keeps them whole", group->key, stage),
                         "it needs stage 3");
  const int64_t size = r.count(group->key).value_or(1);
  if (size >= r.data_ranks()) {
    r.set("strategy", "full_shard", entry);
    return r.ignore(*group, "one copy takes all ranks");
  }
  r.set("strategy", "hybrid_shard", entry);
  r.set("mesh.shard", std::to_string(size), *group);
}

}  // namespace

int64_t stage_of(const Reading& r) {
  if (r.flag("zero_optimization")) return 1;
  return r.count("zero_optimization.stage").value_or(0);
}

void stage(Reading& r, const Given& entry) { set_strategy(r, entry, base::parse_count(entry.text).value_or(-1)); }

namespace {

// "zero_optimization": true is stage 1.
void flag_stage(Reading& r, const Given& entry) { set_strategy(r, entry, r.flag(entry.key) ? 1 : 0); }

void bucket(Reading& r, const Given& entry) {
  const int64_t stage = stage_of(r);
  if (stage == 1 || stage == 2)
    return r.set("wrap.min_num_params", std::to_string(r.count(entry.key).value_or(1)), entry);
  r.ignore(entry,
           stage == 0 ? "stage 0 does not read it" : "with stage 3 each block is gathered and reduced by itself");
}

void prefetch_bucket(Reading& r, const Given& entry) {
  if (stage_of(r) != 3) return r.ignore(entry, "only stage 3 reads it");
  if (r.count(entry.key).value_or(1) == 0) return r.set("schedule.prefetch", "0", entry);
  r.set("schedule.prefetch", "1", entry);
}

// 0 releases weights at once; a unit's are gathered at the least.
void live_parameters(Given& given) {
  if (base::parse_count(given.text) == 0) given.text = "1";
}

void overlap(Reading& r, const Given& entry) { r.set("schedule.reduce_lag", r.flag(entry.key) ? "1" : "0", entry); }

}  // namespace

std::vector<Row> zero_rows() {
  using enum Takes;
  return {
      {.key = "zero_optimization",
       .takes = flag,
       .becomes = "strategy: true is stage 1 (the old form)",
       .by = flag_stage},
      {.key = "zero_optimization.stage",
       .takes = count,
       .becomes = "strategy: 0 no_shard, 1 zero1, 2 shard_grad_op, 3 full_shard; hybrid_shard with MiCS or hpZ",
       .by = stage},
      {.key = "zero_optimization.contiguous_gradients", .takes = flag, .ignored = kArena},
      {.key = "zero_optimization.reduce_scatter",
       .takes = flag,
       .ignored = "each rank always reduces the part that it owns"},
      {.key = "zero_optimization.reduce_bucket_size",
       .takes = count,
       .becomes = "wrap.min_num_params with stages 1 and 2",
       .by = bucket,
       .automatic = "wrap.min_num_params is left: a block has more than hidden_size^2 parameters"},
      {.key = "zero_optimization.use_multi_rank_bucket_allreduce",
       .takes = flag,
       .ignored = "each rank always reduces the part that it owns"},
      {.key = "zero_optimization.allgather_partitions", .takes = flag, .ignored = "weights are always gathered"},
      {.key = "zero_optimization.allgather_bucket_size",
       .takes = count,
       .ignored = "what is reduced as one is gathered as one: reduce_bucket_size",
       .automatic = "wrap.min_num_params is left"},
      {.key = "zero_optimization.overlap_comm",
       .takes = flag,
       .becomes = "schedule.reduce_lag: 1, or 0 if false",
       .by = overlap},
      {.key = "zero_optimization.load_from_fp32_weights", .takes = flag, .ignored = "checkpoints hold fp32 weights"},
      {.key = "zero_optimization.elastic_checkpoint", .takes = flag, .ignored = kAnyMesh},
      {.key = "zero_optimization.sub_group_size", .takes = count, .ignored = "the optimizer updates a group at a time"},
      {.key = "zero_optimization.stage3_prefetch_bucket_size",
       .takes = count,
       .becomes = "schedule.prefetch with stage 3: 1 unit ahead, 0 for 0",
       .by = prefetch_bucket,
       .automatic = "schedule.prefetch is left: 1 unit ahead"},
      {.key = "zero_optimization.prefetch_bucket_size",
       .takes = count,
       .becomes = "schedule.prefetch with stage 3: 1 unit ahead, 0 for 0",
       .by = prefetch_bucket},
      {.key = "zero_optimization.stage3_param_persistence_threshold",
       .takes = count,
       .ignored = "small parameters are gathered with their block, so they cost no gather of their own",
       .automatic = "small parameters are gathered with their block"},
      {.key = "zero_optimization.param_persistence_threshold",
       .takes = count,
       .ignored = "small parameters are gathered with their block, so they cost no gather of their own"},
      {.key = "zero_optimization.stage3_model_persistence_threshold",
       .takes = count,
       .ignored = "no parameters stay gathered"},
      {.key = "zero_optimization.model_persistence_threshold",
       .takes = count,
       .ignored = "no parameters stay gathered"},
      {.key = "zero_optimization.stage3_max_live_parameters",
       .takes = count,
       .setting = "schedule.limit_unsharded",
       .adapt = live_parameters},
      {.key = "zero_optimization.max_live_parameters",
       .takes = count,
       .setting = "schedule.limit_unsharded",
       .adapt = live_parameters},
      {.key = "zero_optimization.stage3_max_reuse_distance",
       .takes = count,
       .ignored = "the schedule knows each reader: weights are freed after the last one"},
      {.key = "zero_optimization.max_reuse_distance",
       .takes = count,
       .ignored = "the schedule knows each reader: weights are freed after the last one"},
      {.key = "zero_optimization.stage3_gather_16bit_weights_on_model_save",
       .takes = flag,
       .ignored = "a checkpoint is one folder with whole weights"},
      {.key = "zero_optimization.stage3_gather_fp16_weights_on_model_save",
       .takes = flag,
       .ignored = "a checkpoint is one folder with whole weights"},
      {.key = "zero_optimization.gather_16bit_weights_on_model_save",
       .takes = flag,
       .ignored = "a checkpoint is one folder with whole weights"},
      {.key = "zero_optimization.stage3_module_granularity_threshold",
       .takes = count,
       .ignored = "wrap.by says what is gathered as one"},
      {.key = "zero_optimization.module_granularity_threshold",
       .takes = count,
       .ignored = "wrap.by says what is gathered as one"},
      {.key = "zero_optimization.use_all_reduce_for_fetch_params",
       .takes = flag,
       .ignored = "weights are gathered with an all-gather"},
      {.key = "zero_optimization.allgather_sequential", .takes = flag, .ignored = "gathers have one queue"},
      {.key = "zero_optimization.stage3_use_all_reduce_for_fetch_params",
       .takes = flag,
       .ignored = "weights are gathered with an all-gather"},
      {.key = "zero_optimization.stage3_allgather_sequential", .takes = flag, .ignored = "gathers have one queue"},
      {.key = "zero_optimization.legacy_stage1", .takes = flag, .ignored = "there is one stage 1"},
      {.key = "zero_optimization.round_robin_gradients", .takes = flag, .ignored = kCopies},
      {.key = "zero_optimization.ignore_unused_parameters", .takes = flag, .ignored = "every parameter has a gradient"},
      {.key = "zero_optimization.zero_hpz_partition_size",
       .takes = count,
       .becomes = "mesh.shard of hybrid_shard, with stage 3; the optimizer's state is divided inside a copy too"},
      {.key = "zero_optimization.mics_shard_size",
       .takes = count,
       .becomes = "mesh.shard of hybrid_shard, with stage 3"},
      {.key = "zero_optimization.mics_hierarchical_params_gather",
       .takes = flag,
       .ignored = "the ranks of a machine share one copy of what they gather"},
      {.key = "zero_optimization.zero_quantized_weights", .takes = flag, .open = kQuantized},
      {.key = "zero_optimization.zero_quantized_nontrainable_weights", .takes = flag, .open = kQuantized},
      {.key = "zero_optimization.zero_quantized_gradients", .takes = flag, .open = kQuantized},
      {.key = "zero_optimization.zeropp_loco_param.*", .open = kQuantized},
      {.key = "zero_optimization.memory_efficient_linear", .takes = flag, .ignored = "products keep no copies"},
      {.key = "zero_optimization.pipeline_loading_checkpoint", .takes = flag, .ignored = "ranks load what they own"},
      {.key = "zero_optimization.override_module_apply", .takes = flag, .ignored = "there are no modules to hook"},
      {.key = "zero_optimization.log_trace_cache_warnings", .takes = flag, .ignored = "there is no trace cache"},
      {.key = "zero_optimization.enable_sanity_checks", .takes = flag, .ignored = "every plan is checked"},
      {.key = "zero_optimization.cpu_offload", .takes = flag, .becomes = kOffloadOptimizer},
      {.key = "zero_optimization.cpu_offload_param", .takes = flag, .becomes = kOffloadParameters},
      {.key = "zero_optimization.cpu_offload_params", .takes = flag, .becomes = kOffloadParameters},
      {.key = "zero_optimization.cpu_offload_use_pin_memory", .takes = flag, .ignored = kHeld},
      {.key = "zero_optimization.offload_param.device", .takes = text, .becomes = kOffloadParameters},
      {.key = "zero_optimization.offload_optimizer.device", .takes = text, .becomes = kOffloadOptimizer},
      {.key = "zero_optimization.offload_param.nvme_path", .takes = text, .becomes = "offload.path"},
      {.key = "zero_optimization.offload_optimizer.nvme_path", .takes = text, .becomes = "offload.path"},
      {.key = "zero_optimization.offload_optimizer.ratio", .takes = number, .becomes = kOffloadRatio},
      {.key = "zero_optimization.offload_param.buffer_count", .takes = number, .ignored = kCopies},
      {.key = "zero_optimization.offload_param.buffer_size", .takes = number, .ignored = kCopies},
      {.key = "zero_optimization.offload_param.max_in_cpu", .takes = number, .ignored = kCopies},
      {.key = "zero_optimization.offload_param.pin_memory", .takes = flag, .ignored = kHeld},
      {.key = "zero_optimization.offload_param", .refused = kIsMap},
      {.key = "zero_optimization.offload_optimizer.buffer_count", .takes = number, .ignored = kCopies},
      {.key = "zero_optimization.offload_optimizer.pipeline", .takes = flag, .ignored = kCopies},
      {.key = "zero_optimization.offload_optimizer.pipeline_read", .takes = flag, .ignored = kCopies},
      {.key = "zero_optimization.offload_optimizer.pipeline_write", .takes = flag, .ignored = kCopies},
      {.key = "zero_optimization.offload_optimizer.fast_init", .takes = flag, .ignored = kCopies},
      {.key = "zero_optimization.offload_optimizer.super_offload", .takes = flag, .ignored = kOwnThreads},
      {.key = "zero_optimization.offload_optimizer.cpuadam_cores_perc", .takes = number, .ignored = kOwnThreads},
      {.key = "zero_optimization.offload_optimizer.pin_memory", .takes = flag, .ignored = kHeld},
      {.key = "zero_optimization.offload_optimizer", .refused = kIsMap},
      {.key = "zero_optimization.compute_grad_norm",
       .takes = flag,
       .ignored = "the norm is always computed: it is exact"},
      {.key = "zero_optimization.parameter_alignment",
       .takes = count,
       .ignored = "shards are aligned as collectives need it"},
      {.key = "zero_optimization.save_muon_momentum_buffer_in_memory",
       .takes = flag,
       .ignored = "checkpoints hold the momentum"},
      {.key = "zero_optimization.leaf_module.*", .ignored = "wrap.by says what is gathered as one"},
      {.key = "zero_optimization.zenflow.*", .open = "ZenFlow; leave it out"},
  };
}

void finish_zero(Reading& r) {
  for (const std::string_view key : {"zero_optimization.mics_shard_size", "zero_optimization.zero_hpz_partition_size"})
    if (const Given* entry = r.find(key); entry != nullptr && !r.is_settled(*entry))
      r.ignore(*entry, r.count(key).value_or(1) > 1 ? "only stage 3 reads it" : "it is off");
}

}  // namespace trireme::dialects::ds
