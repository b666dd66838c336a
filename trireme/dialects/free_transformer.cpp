// The YAML of udapy/free-transformer, with the keys of its code and of its documentation pages. Sources: its
// configs/*.yaml, TrainingConfig, and the pages on multi-GPU training.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/dialects/deepspeed_parts.h"
#include "trireme/dialects/free_transformer_rules.h"
#include "trireme/dialects/offload.h"
#include "trireme/dialects/reasons.h"

namespace trireme::dialects {
namespace {

using config::Given;

void flag_recompute(Reading& r, const Given& entry) {
  r.flag(entry.key) ? r.set("recompute", "full", entry) : r.ignore(entry, "it is off");
}

void wrap_policy(Reading& r, const Given& entry) {
  constexpr std::string_view kPolicies[] = {"transformer_auto_wrap", "size_based_auto_wrap", "module_wrap"};
  if (std::ranges::find(kPolicies, std::string_view(lower(entry.text))) == std::end(kPolicies))
    return r.refuse(entry, fmt::format("there is no wrap policy {}", entry.text),
                    "there are transformer_auto_wrap, size_based_auto_wrap and module_wrap");
  r.set("wrap.by", "block", entry);
}

// Nats there and in the paper, bits here.
void free_bits(Reading& r, const Given& entry) {
  r.set("free.free_bits", fmt::format("{}", r.number(entry.key).value_or(0) / std::log(2.0)), entry);
}

// Of attention weights and of the attention's output; the MLP's output is not dropped.
void dropout(Reading& r, const Given& entry) {
  if (r.number(entry.key).value_or(0) == 0) return r.ignore(entry, "it is off");
  r.set("model.attention_dropout", entry.text, entry);
  r.set("model.residual_dropout", entry.text, entry);
  r.set("model.mlp_dropout", "0", entry);
}

void one_encoder(Reading& r, const Given& entry) {
  if (r.count(entry.key) == 1)
    r.ignore(entry, "the encoder is one block");
  else
    r.refuse(entry, "the encoder is one block, as in the paper", "say 1, or leave it out");
}

void additive(Reading& r, const Given& entry) {
  if (lower(entry.text) == "additive")
    r.ignore(entry, "the latent is added to the input of keys and values");
  else
    r.refuse(entry, "the latent is added to the input of keys and values, as in the paper", "say additive");
}

}  // namespace

const Dialect& free_transformer() {
  using enum Takes;
  constexpr std::string_view kFree = "this change to the Free Transformer's loss or latent; leave it out";
  constexpr std::string_view kData = "the data is given by data.train_data_path";
  constexpr std::string_view kBatch =
      "train.micro_batch_size and train.global_batch_size = it x accumulation x data-parallel ranks";
  constexpr std::string_view kBlock = "Llama's block: RMSNorm, rotary positions, SwiGLU";
  static const Dialect kDialect{
      .name = "free-transformer",
      .system = "free-transformer",
      .about = "The YAML of udapy/free-transformer's examples: `trireme pretrain --config free.yaml --use-fsdp`.",
      .marks = {"distributed", "training.beta_kl", "training.kappa_free_bits", "model.hidden_dim", "model.latent_dim",
                "training.batch_size", "training.gradient_clip_norm", "training.grad_clip",
                "training.gradient_checkpointing"},
      .words = Words::plain,
      .rows =
          {
              {.key = "use_fsdp", .takes = flag, .becomes = "strategy full_shard"},
              {.key = "distributed.use_fsdp", .takes = flag, .becomes = "strategy: full_shard, or no_shard if false"},
              {.key = "distributed.fsdp_sharding_strategy",
               .takes = text,
               .becomes = "strategy: full_shard, shard_grad_op or no_shard"},
              {.key = "distributed.fsdp_backward_prefetch",
               .takes = text,
               .setting = "schedule.prefetch_backward",
               .words = {{"backward_pre", "pre"}, {"backward_post", "post"}, {"no_prefetch", "none"}}},
              {.key = "distributed.fsdp_forward_prefetch", .takes = flag, .setting = "schedule.prefetch_forward"},
              {.key = "distributed.fsdp_auto_wrap_policy",
               .takes = text,
               .becomes = "wrap.by block; fsdp_min_num_params says how small a group may be",
               .by = wrap_policy},
              {.key = "distributed.fsdp_min_num_params", .takes = count, .setting = "wrap.min_num_params"},
              {.key = "distributed.fsdp_state_dict_type", .takes = text, .ignored = kOneFolder},
              {.key = "distributed.fsdp_mixed_precision", .takes = flag, .becomes = "precision: 32-true if false"},
              {.key = "distributed.fsdp_param_dtype",
               .takes = text,
               .becomes = "precision: bfloat16 bf16-mixed, float16 16-mixed, float32 32-true"},
              {.key = "distributed.fsdp_reduce_dtype",
               .takes = text,
               .becomes = "precision.reduce: float32 fp32, the dtype of fsdp_param_dtype compute"},
              {.key = "distributed.fsdp_buffer_dtype", .takes = text, .ignored = "rotary angles are computed in fp32"},
              {.key = "distributed.cpu_offload", .takes = flag, .becomes = kOffloadAll},
              {.key = "distributed.backend", .takes = text, .ignored = "comm.backend chooses how ranks communicate"},
              {.key = "training.use_fsdp", .takes = flag, .becomes = "strategy: full_shard, or no_shard if false"},
              {.key = "training.use_deepspeed",
               .takes = flag,
               .refused = "give the DeepSpeed file itself: --config ds.json"},
              {.key = "training.fsdp_config.*", .ignored = "free-transformer does not read it"},
              {.key = "training.deepspeed_config.*", .ignored = "free-transformer does not read it"},
              {.key = "training.batch_size", .takes = count, .becomes = kBatch},
              {.key = "training.gradient_accumulation_steps", .takes = count, .becomes = kBatch},
              {.key = "training.eval_batch_size", .takes = count, .ignored = "evaluation has train.micro_batch_size"},
              {.key = "training.learning_rate", .takes = number, .setting = "optimizer.lr"},
              {.key = "training.weight_decay", .takes = number, .setting = "optimizer.weight_decay"},
              {.key = "training.beta1", .takes = number, .becomes = "optimizer.betas"},
              {.key = "training.beta2", .takes = number, .becomes = "optimizer.betas"},
              {.key = "training.grad_clip", .takes = number, .becomes = "train.max_norm: 0 is null", .by = ds::clip},
              {.key = "training.gradient_clip_norm",
               .takes = number,
               .becomes = "train.max_norm: 0 is null",
               .by = ds::clip},
              {.key = "training.max_grad_norm",
               .takes = number,
               .becomes = "train.max_norm: 0 is null",
               .by = ds::clip},
              {.key = "training.warmup_steps", .takes = count, .setting = "train.lr_warmup_steps"},
              {.key = "training.warmup_ratio", .takes = number, .becomes = "train.lr_warmup_steps, of train.max_steps"},
              {.key = "training.lr_scheduler_type", .takes = text, .setting = "train.lr_decay"},
              {.key = "training.min_lr_ratio", .takes = number, .becomes = "train.min_lr, of optimizer.lr"},
              {.key = "training.max_steps", .takes = count, .setting = "train.max_steps"},
              {.key = "training.num_epochs", .takes = count, .setting = "train.epochs"},
              {.key = "training.save_every", .takes = count, .setting = "train.save_interval"},
              {.key = "training.save_steps", .takes = count, .setting = "train.save_interval"},
              {.key = "training.eval_every", .takes = count, .setting = "eval.interval"},
              {.key = "training.eval_steps", .takes = count, .setting = "eval.interval"},
              {.key = "training.log_every", .takes = count, .setting = "train.log_interval"},
              {.key = "training.logging_steps", .takes = count, .setting = "train.log_interval"},
              {.key = "training.checkpoint_dir", .takes = text, .setting = "out_dir"},
              {.key = "training.wandb_project", .takes = text, .ignored = kMetrics},
              {.key = "training.bf16", .takes = flag, .becomes = "precision bf16-mixed, or 32-true"},
              {.key = "training.fp16", .takes = flag, .becomes = "precision 16-mixed, or 32-true"},
              {.key = "training.gradient_checkpointing",
               .takes = flag,
               .becomes = "recompute full",
               .by = flag_recompute},
              {.key = "training.dataloader_num_workers", .takes = count, .setting = "data.num_workers"},
              {.key = "training.dataloader_pin_memory", .takes = flag, .ignored = "batches are copied once"},
              {.key = "training.beta_kl", .takes = number, .setting = "free.kl_weight"},
              {.key = "training.kappa_free_bits",
               .takes = number,
               .becomes = "free.free_bits, from nats to bits",
               .by = free_bits},
              {.key = "training.kl_weight", .takes = number, .setting = "free.kl_weight"},
              {.key = "training.free_bits",
               .takes = number,
               .becomes = "free.free_bits, from nats to bits",
               .by = free_bits},
              {.key = "training.kl_annealing", .takes = flag, .open = kFree},
              {.key = "training.kl_annealing_steps", .takes = count, .open = kFree},
              {.key = "training.initial_kl_weight", .takes = number, .open = kFree},
              {.key = "training.final_kl_weight", .takes = number, .open = kFree},
              {.key = "training.free_bits_annealing", .takes = flag, .open = kFree},
              {.key = "training.initial_free_bits", .takes = number, .open = kFree},
              {.key = "training.final_free_bits", .takes = number, .open = kFree},
              {.key = "optimizer.type", .takes = text, .setting = "optimizer"},
              {.key = "optimizer.betas", .takes = numbers, .setting = "optimizer.betas"},
              {.key = "optimizer.eps", .takes = number, .setting = "optimizer.eps"},
              {.key = "optimizer.weight_decay", .takes = number, .setting = "optimizer.weight_decay"},
              {.key = "optimizer.lr", .takes = number, .setting = "optimizer.lr"},
              {.key = "model.vocab_size", .takes = count, .setting = "model.vocab_size"},
              {.key = "model.hidden_dim", .takes = count, .setting = "model.hidden_size"},
              {.key = "model.num_layers", .takes = count, .setting = "model.num_hidden_layers"},
              {.key = "model.num_heads", .takes = count, .setting = "model.num_attention_heads"},
              {.key = "model.num_kv_heads", .takes = count, .setting = "model.num_key_value_heads"},
              {.key = "model.num_key_value_heads", .takes = count, .setting = "model.num_key_value_heads"},
              {.key = "model.ffn_hidden_dim", .takes = count, .setting = "model.intermediate_size"},
              {.key = "model.intermediate_size", .takes = count, .setting = "model.intermediate_size"},
              {.key = "model.max_seq_len", .takes = count, .setting = "model.max_position_embeddings"},
              {.key = "model.rms_norm_eps", .takes = number, .setting = "model.rms_norm_eps"},
              {.key = "model.rope_theta", .takes = number, .setting = "model.rope_theta"},
              {.key = "model.initializer_range", .takes = number, .setting = "model.initializer_range"},
              {.key = "model.use_rmsnorm", .takes = flag, .ignored = kBlock},
              {.key = "model.use_rope", .takes = flag, .ignored = kBlock},
              {.key = "model.use_swiglu", .takes = flag, .ignored = kBlock},
              {.key = "model.hidden_act", .takes = text, .ignored = kBlock},
              {.key = "model.dropout",
               .takes = number,
               .becomes = "model.attention_dropout and model.residual_dropout, with model.mlp_dropout 0",
               .by = dropout},
              {.key = "model.attention_dropout", .takes = number, .ignored = "free-transformer does not read it"},
              {.key = "model.latent_dim", .takes = count, .setting = "free.latent_bits"},
              {.key = "model.split_layer", .takes = count, .setting = "free.split_layer"},
              {.key = "model.encoder_layers",
               .takes = count,
               .becomes = "nothing: the encoder is one block",
               .by = one_encoder},
              {.key = "model.gumbel_temperature", .takes = number, .open = kFree},
              {.key = "model.binary_threshold", .takes = number, .open = kFree},
              {.key = "model.injection_method", .takes = text, .becomes = "nothing: additive", .by = additive},
              {.key = "model.injection_layers", .open = kFree},
              {.key = "data.max_length", .takes = count, .setting = "train.max_seq_length"},
              {.key = "data.max_seq_len", .takes = count, .setting = "train.max_seq_length"},
              {.key = "data.num_workers", .takes = count, .setting = "data.num_workers"},
              {.key = "data.seed", .takes = count, .setting = "data.seed"},
              {.key = "data.*", .ignored = kData},
              {.key = "logging.output_dir", .takes = text, .setting = "out_dir"},
              {.key = "logging.*", .ignored = kMetrics},
              {.key = "environment.seed", .takes = count, .setting = "seed"},
              {.key = "environment.*", .ignored = "accelerator says what ranks compute on; results are reproducible"},
          },
      .one_value_each = true,
      .finish = finish_free_transformer};
  return kDialect;
}

}  // namespace trireme::dialects
