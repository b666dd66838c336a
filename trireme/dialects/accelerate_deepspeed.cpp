// Accelerate's deepspeed_config: keys of its own, or the name of a DeepSpeed file. Source: Accelerate 1.15
// (utils/dataclasses.py, utils/deepspeed.py).
#include <fmt/format.h>

#include <algorithm>

#include "trireme/dialects/accelerate_parts.h"
#include "trireme/dialects/batch.h"
#include "trireme/dialects/deepspeed_parts.h"
#include "trireme/dialects/number_formats.h"
#include "trireme/dialects/offload.h"
#include "trireme/dialects/reasons.h"

namespace trireme::dialects::accelerate_parts {

using config::Given;

namespace {

constexpr std::string_view kDeepSpeed = "deepspeed_config.";

// A switch of a DeepSpeed file; null if the file lacks it, or leaves it with "auto".
const Given* switch_in(const config::ForeignFile& file, std::string_view key) {
  const auto found = std::ranges::find(file.entries, key, &Given::key);
  return found == file.entries.end() || !is_flag_text(*found) ? nullptr : &*found;
}

bool is_on(const Given* entry) { return entry != nullptr && lower(entry->text) == "true"; }

// Accelerate's mixed_precision counts where the DeepSpeed file says nothing. True if the file says bf16, of which
// Accelerate makes numbers of 8 bits.
bool makes_8_bits(Reading& r, const config::ForeignFile& file) {
  const Given* own = r.find("mixed_precision");
  if (own == nullptr && r.flag("fp16")) own = r.find("fp16");  // the old form
  if (own == nullptr) return false;
  const std::string word = own->key == "fp16" ? "fp16" : lower(own->text);
  const Given *half = switch_in(file, "fp16.enabled"), *brain = switch_in(file, "bf16.enabled");
  const bool wants_half = dtype_word(word) == "fp16", wants_brain = dtype_word(word) == "bf16" || word == "fp8";
  const Given *same = wants_half ? half : brain, *other = wants_half ? brain : half;
  if ((wants_half || wants_brain) && is_on(other)) {
    r.refuse_both(*own, *other,
                  fmt::format("{} {} contradicts {} of the DeepSpeed file", own->key, own->text, other->key),
                  fmt::format("leave {} out, or let both say the same", own->key));
    return false;
  }
  if (wants_half || wants_brain ? same == nullptr || (is_on(same) && word != "fp8") : !is_on(half) && !is_on(brain))
    return false;  // they agree
  r.take_back(*own, "precision");
  if (wants_brain && is_on(same)) return true;
  r.ignore(*own, "the DeepSpeed file says which precision");
  r.suggest("precision", "32-true");
  return false;
}

// Refuses inline keys beside a DeepSpeed file, as Accelerate does, and reads the file.
void deepspeed_file(Reading& r, const Given& entry) {
  constexpr std::string_view kInline[] = {
      "zero_stage",           "gradient_accumulation_steps", "gradient_clipping",       "offload_optimizer_device",
      "offload_param_device", "offload_optimizer_nvme_path", "offload_param_nvme_path", "zero3_save_16bit_model"};
  for (const std::string_view key : kInline)
    if (const Given* both = r.find(in(kDeepSpeed, key)); both != nullptr)
      r.refuse_both(entry, *both, fmt::format("deepspeed_config_file has its own {}", key), "keep one of the two");
  const auto file = r.named_file(deepspeed(), entry.text, entry);
  if (!file) return;
  const bool has_8_bits = makes_8_bits(r, *file);
  r.include(deepspeed(), *file);
  if (has_8_bits) r.set("precision", "fp8-mixed", *r.find("mixed_precision"));
  r.tell(entry, fmt::format("its {} keys follow", file->entries.size()));
}

}  // namespace

void set_accumulation(Reading& r, const std::string& steps) {
  set_batch(r, "", "", steps);
  if (r.find(steps) != nullptr || r.is_left(steps)) return;
  constexpr int64_t kMost = int64_t{1} << 40;
  const int64_t micro = std::clamp<int64_t>(r.known_count("train.micro_batch_size").value_or(1), 1, kMost);
  r.suggest("train.global_batch_size", std::to_string(micro * r.data_ranks()));
}

namespace {

void deepspeed_inline(Reading& r) {
  const Given* stage = r.find(in(kDeepSpeed, "zero_stage"));
  if (stage == nullptr)
    r.suggest("strategy", "shard_grad_op");  // Accelerate's default is stage 2
  else
    ds::stage(r, *stage);
  const std::string steps = in(kDeepSpeed, "gradient_accumulation_steps");
  set_accumulation(r, steps);
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
      {.key = "deepspeed_config.seq_parallel_communication_data_type", .takes = text, .ignored = ds::kSequenceDtype},
      {.key = "deepspeed_config.deepspeed_moe_layer_cls_names", .open = "mixtures of experts; leave it out"},
  };
}

void deepspeed_strategy(Reading& r) {
  const Given* file = r.find("deepspeed_config.deepspeed_config_file");
  file != nullptr ? deepspeed_file(r, *file) : deepspeed_inline(r);
}

}  // namespace trireme::dialects::accelerate_parts
