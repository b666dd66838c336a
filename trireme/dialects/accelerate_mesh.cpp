// Accelerate's parallelism_config and megatron_lm_config. Source: Accelerate 1.15 (parallelism_config.py,
// utils/megatron_lm.py).
#include <fmt/format.h>

#include "trireme/dialects/accelerate_parts.h"
#include "trireme/dialects/batch.h"
#include "trireme/dialects/deepspeed_parts.h"
#include "trireme/dialects/offload.h"
#include "trireme/dialects/reasons.h"

namespace trireme::dialects::accelerate_parts {

using config::Given;

namespace {

constexpr std::string_view kMegatron = "megatron_lm_config.megatron_lm_";
constexpr std::string_view kParallel = "parallelism_config.parallelism_config_";

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

// Megatron-LM drops elements of the embedding and of what each branch adds.
void hidden_dropout(Reading& r, const Given& entry) {
  r.set("model.residual_dropout", entry.text, entry);
  r.set("model.embedding_dropout", entry.text, entry);
}

void selective(Reading& r, const Given& entry) {
  if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
  r.set("recompute", "selective", entry);
  r.set("recompute.values", "[attended]", entry);
}

}  // namespace

std::vector<Row> mesh_rows() {
  using enum Takes;
  constexpr std::string_view kModel = "the model's own setting counts";
  return {
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
      {.key = "parallelism_config.parallelism_config_sp_seq_length", .takes = count, .setting = "train.max_seq_length"},
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
       .by = ds::clip},
      {.key = "megatron_lm_config.megatron_lm_sequence_parallelism",
       .takes = flag,
       .becomes = "mesh.sequence_parallel, with mesh.tp above 1",
       .by =
           [](Reading& r, const Given& entry) {
             if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
             if (r.count(in(kMegatron, "tp_degree")).value_or(1) <= 1)
               return r.ignore(entry, "only a megatron_lm_tp_degree above 1 reads it");
             r.set("mesh.sequence_parallel", "true", entry);
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
      {.key = "megatron_lm_config.megatron_lm_optimizer_cpu_offload", .takes = flag, .becomes = kOffloadOptimizer},
      {.key = "megatron_lm_config.megatron_lm_attention_dropout",
       .takes = number,
       .setting = "model.attention_dropout"},
      {.key = "megatron_lm_config.megatron_lm_hidden_dropout",
       .takes = number,
       .becomes = "model.residual_dropout and model.embedding_dropout",
       .by = hidden_dropout},
      {.key = "megatron_lm_config.*", .ignored = kModel},
  };
}

const Given* copies_of_whole_weights(const Reading& r) {
  const Given* replicate = r.find(in(kParallel, "dp_replicate_size"));
  const bool is_it = replicate != nullptr && r.count(replicate->key).value_or(1) > 1 &&
                     r.count(in(kParallel, "dp_shard_size")).value_or(1) == 1;
  return is_it ? replicate : nullptr;
}

void megatron_strategy(Reading& r) {
  const Given* divides = r.find(in(kMegatron, "use_distributed_optimizer"));
  if (divides == nullptr)
    r.suggest("strategy", "no_shard");
  else
    r.set("strategy", r.flag(divides->key) ? "zero1" : "no_shard", *divides);
  set_accumulation(r, in(kMegatron, "num_micro_batches"));
  if (r.find(in(kMegatron, "gradient_clipping")) == nullptr) r.suggest("train.max_norm", "1.0");
}

}  // namespace trireme::dialects::accelerate_parts
