// Accelerate's deepspeed_config: keys of its own, or the name of a DeepSpeed file. Source: Accelerate 1.15
// (utils/dataclasses.py, utils/deepspeed.py).
#include <fmt/format.h>

#include <algorithm>

#include "trireme/dialects/accelerate_parts.h"
#include "trireme/dialects/batch.h"
#include "trireme/dialects/deepspeed_parts.h"
#include "trireme/dialects/offload.h"
#include "trireme/dialects/reasons.h"
#include "trireme/dialects/systems.h"

namespace trireme::dialects::accelerate_parts {

using config::Given;

namespace {

constexpr std::string_view kDeepSpeed = "deepspeed_config.";

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
  set_batch(r, "", "", steps);
  if (r.find(steps) == nullptr && !r.is_left(steps)) {  // the default is 1
    constexpr int64_t kMost = int64_t{1} << 40;
    const int64_t micro = std::clamp<int64_t>(r.known_count("train.micro_batch_size").value_or(1), 1, kMost);
    r.suggest("train.global_batch_size", std::to_string(micro * r.data_ranks()));
  }
}

}  // namespace

std::vector<Row> deepspeed_rows() {
  using enum Takes;
  return {
      {.key = "deepspeed_config.deepspeed_config_file", .takes = text, .becomes = "the keys of that DeepSpeed file"},
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
       .by = ds::clip,
       .automatic = "train.max_norm is left"},
      {.key = "deepspeed_config.offload_optimizer_device", .takes = text, .becomes = kOffloadOptimizer},
      {.key = "deepspeed_config.offload_param_device", .takes = text, .becomes = kOffloadParameters},
      {.key = "deepspeed_config.offload_optimizer_nvme_path", .takes = text, .becomes = "offload.path"},
      {.key = "deepspeed_config.offload_param_nvme_path", .takes = text, .becomes = "offload.path"},
      {.key = "deepspeed_config.zero3_init_flag", .takes = flag, .ignored = kWeights},
      {.key = "deepspeed_config.zero3_save_16bit_model", .takes = flag, .ignored = kOneFolder},
      {.key = "deepspeed_config.deepspeed_multinode_launcher",
       .takes = text,
       .ignored = "machines are started by ssh (launch.hosts), or each with its own command"},
      {.key = "deepspeed_config.deepspeed_hostfile", .takes = text, .setting = "launch.hostfile"},
      {.key = "deepspeed_config.deepspeed_inclusion_filter", .takes = text, .setting = "launch.include"},
      {.key = "deepspeed_config.deepspeed_exclusion_filter", .takes = text, .setting = "launch.exclude"},
      {.key = "deepspeed_config.deepspeed_moe_layer_cls_names", .open = "mixtures of experts; leave it out"},
  };
}

void deepspeed_strategy(Reading& r) {
  const Given* file = r.find("deepspeed_config.deepspeed_config_file");
  file != nullptr ? deepspeed_file(r, *file, r.problems()) : deepspeed_inline(r);
}

}  // namespace trireme::dialects::accelerate_parts
