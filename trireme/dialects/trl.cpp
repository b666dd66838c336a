// TRL's YAML for `trl grpo`: the fields of GRPOConfig, ModelConfig and ScriptArguments, with their defaults.
// Source: TRL 1.16, trl/trainer/grpo_config.py, trl/trainer/model_config.py, transformers/training_args.py.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "trireme/base/text.h"
#include "trireme/dialects/batch.h"
#include "trireme/dialects/hydra_rules.h"
#include "trireme/dialects/number_formats.h"
#include "trireme/dialects/reading.h"
#include "trireme/dialects/reasons.h"
#include "trireme/dialects/trl_cli.h"
#include "trireme/dialects/trl_rules.h"
#include "trireme/dialects/trl_trainer.h"

namespace trireme::dialects {
namespace {

using config::Given;

// Keys of `trl grpo` that those of SFT and DPO lack.
constexpr const char* kOfGrpo[] = {"num_generations",
                                   "generation_batch_size",
                                   "steps_per_generation",
                                   "num_iterations",
                                   "max_completion_length",
                                   "reward_funcs",
                                   "reward_weights",
                                   "scale_rewards",
                                   "epsilon",
                                   "epsilon_high",
                                   "delta",
                                   "importance_sampling_level",
                                   "mask_truncated_completions",
                                   "top_entropy_quantile",
                                   "entropy_coef",
                                   "use_bias_correction_kl",
                                   "vllm_importance_sampling_correction"};

// SFT and DPO have files with the same keys, other batches and other defaults. So have trainers of others.
void begin_trl(Reading& r) {
  if (r.command() == "grpo" || learns_from_rewards(r)) return trl_launcher(r);
  constexpr std::string_view kNames =
      "say the settings of TRL's sft and dpo by Trireme's names: learning_rate is optimizer.lr, and so on "
      "(docs/coming-from.md)";
  if (r.command() == "pretrain" || r.command().starts_with("finetune"))
    return r.refuse_file(fmt::format("TRL's files are read for trireme grpo, not for trireme {}", r.command()), kNames);
  // DPO has a loss_type too, with other words.
  const std::string loss = lower(r.text("loss_type"));
  const bool has_loss = loss == "grpo" || loss == "dapo" || loss == "dr_grpo" || loss == "bnpo";
  if (!has_loss && std::ranges::none_of(kOfGrpo, [&](const char* key) { return r.has(key); }))
    return r.refuse_file(
        "TRL's files are read for trireme grpo, and this one has none of the keys by which those files are known",
        fmt::format("if it is of trl grpo, say --task rewards; else {}", kNames));
  trl_launcher(r);
}

void trl_loss_type(Reading& r, const Given& entry) {
  const std::string name = lower(entry.text);
  const std::string_view mode = name == "grpo"      ? "sequence-mean-token-mean"
                                : name == "dapo"    ? "rollout-token-mean"
                                : name == "dr_grpo" ? "sequence-mean-token-scale"
                                                    : "";
  if (!mode.empty()) return r.set("grpo.loss_agg_mode", mode, entry);
  if (name == "bnpo")
    return r.refuse(entry, "bnpo divides by the tokens of each rank's micro-batch, so that ranks change the loss",
                    "dapo divides by those of the whole rollout");
  r.refuse_open(entry, fmt::format("the loss {}; there are grpo, dapo and dr_grpo", entry.text));
}

void trl_importance(Reading& r, const Given& entry) {
  const std::string level = lower(entry.text);
  if (level == "token") return r.set("grpo.loss_algo", "grpo", entry);
  if (level == "sequence" || level == "sequence_token") return r.set("grpo.loss_algo", "gspo-token", entry);
  r.refuse(entry, fmt::format("there is no level {}", entry.text), "there are token and sequence");
}

// TRL divides by all answers, masked ones too.
void trl_masks(Reading& r, const Given& entry) {
  r.set("grpo.mask_truncated_completions", entry.text, entry);
  if (r.flag(entry.key)) r.set("grpo.masked_completions_count", "true", entry);
}

void trl_top_k(Reading& r, const Given& entry) {
  r.set("grpo.top_k", r.count(entry.key).value_or(0) == 0 ? "null" : entry.text, entry);
}

void trl_rewards(Reading& r, const Given& entry) {
  if (r.is_given("reward.functions")) return r.ignore(entry, "reward.functions names the rewards");
  if (r.is_given("reward.command")) return r.set("reward.functions", "[command]", entry);
  r.refuse(entry, fmt::format("{} is Python, which is not run here", entry.text),
           "name rewards with --reward.functions, for instance [exact], or a program with --reward.command");
}

void trl_weights(Reading& r, const Given& entry) {
  const Given* theirs = r.find("reward_funcs");
  // reward.command alone is one reward; reward_funcs becomes it, perhaps behind this key.
  const std::string ours = r.counts_more("reward.functions") ? r.known("reward.functions").value_or("") : "";
  const bool replaced = r.counts_more("reward.functions") || r.is_given("reward.command");
  if (theirs != nullptr && replaced && 1 + std::ranges::count(ours, ',') != std::ssize(entry.items))
    return r.ignore(entry, "they weigh the file's own rewards; reward.weights weighs others");
  r.set("reward.weights", entry.text, entry);
}

bool takes_steps(Reading& r, const Given& entry) {
  if (r.count(entry.key)) return true;
  r.refuse(entry, fmt::format("{} wants a whole number, not {}", entry.key, entry.text),
           "a share of the run is not read: give steps");
  return false;
}

void trl_save_steps(Reading& r, const Given& entry) {
  if (takes_steps(r, entry)) r.set("train.save_interval", entry.text, entry);
}

void trl_half(Reading& r, const Given& entry) {
  if (r.flag("bf16") && r.flag("fp16")) {
    if (entry.key == "bf16") r.refuse_both(entry, *r.find("fp16"), "bf16 and fp16 are both true", "keep one of them");
    return;
  }
  if (r.flag(entry.key)) return r.set("precision", entry.key == "bf16" ? "bf16-mixed" : "16-mixed", entry);
  const bool leaves_bf16_on = entry.key == "fp16" && r.find("bf16") == nullptr;
  if (leaves_bf16_on && r.find("accelerate_config") != nullptr)  // whose word counts less than the trainer's default
    return r.set("precision", "bf16-mixed", entry);
  if (r.find("accelerate_config") != nullptr) return r.ignore(entry, "it is off, so accelerate_config says it");
  const Given* other = r.find(entry.key == "bf16" ? "fp16" : "bf16");
  if (entry.key == "bf16" && (other == nullptr || !r.flag("fp16"))) return r.set("precision", "32-true", entry);
  if (leaves_bf16_on) r.suggest("precision", "bf16-mixed");
  r.ignore(entry, "it is off");
}

void trl_norm(Reading& r, const Given& entry) {
  r.set("train.max_norm", r.number(entry.key).value_or(0) > 0 ? entry.text : "null", entry);
}

void trl_recompute(Reading& r, const Given& entry) {
  if (entry.key == "gradient_checkpointing" && r.find("activation_checkpointing") != nullptr)
    return r.ignore(entry, "activation_checkpointing counts");
  r.set("recompute", r.flag(entry.key) ? "full" : "none", entry);
}

void trl_quantize(Reading& r, const Given& entry) {
  if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
  const std::string type = r.text("bnb_4bit_quant_type", "nf4");
  r.set("quantize", fmt::format("bnb.{}{}", type, r.flag("use_bnb_nested_quant") ? "-dq" : ""), entry);
}

void finish_trl(Reading& r) {
  if (r.command() != "grpo") r.suggest("task", "rewards");
  trl_batches(r);
  trl_length(r);
  trl_adapters(r);
  trl_moments(r);
  trl_evaluations(r);
  trl_sampler(r);
  trl_warmup(r);
  r.suggest("optimizer.lr", "1e-6");
  trl_schedule(r);
  suggest_first_step_0(r);
  r.suggest("optimizer.weight_decay", "0");
  r.suggest("train.max_norm", "1.0");
  r.suggest("save.keep_last", "0");
  trl_saves(r);
  if (r.find("fp16") == nullptr && r.find("bf16") == nullptr) {
    const Given* config = r.find("accelerate_config");
    // The trainer's own default counts more than what Accelerate's file says.
    config != nullptr ? r.set("precision", "bf16-mixed", *config) : r.suggest("precision", "bf16-mixed");
  }
  r.suggest("recompute", "full");
  r.suggest("grpo.num_generations", "8");
  r.suggest("grpo.max_completion_length", "512");
  r.suggest("grpo.temperature", "1.0");
  r.suggest("grpo.beta", "0");
  r.suggest("grpo.kl_loss_mode", "low_var_kl");
  r.suggest("grpo.use_bias_correction_kl", "true");
  r.suggest("grpo.advantage_epsilon", "1e-4");
  r.suggest("grpo.loss_agg_mode", "rollout-token-mean");
}

}  // namespace

const Dialect& trl() {
  using enum Takes;
  static constexpr std::string_view kSampling = "answers are sampled by the engine that trains, in the same memory";
  static constexpr std::string_view kHub = "nothing is uploaded";
  static constexpr std::string_view kBatch = "grpo.batch_size and grpo.mini_batch_size, which count prompts";
  static constexpr std::string_view kAdapters = "with use_peft: lora.*";
  static const Dialect kDialect = [] {
    Dialect d{
        .name = "trl",
        .system = "TRL",
        .about =
            "The YAML of `trl grpo`, with TRL's defaults: `trireme grpo --config grpo.yaml --grpo.prompts train.jsonl "
            "--reward.functions [exact]`. Its batches count answers; here they count prompts. Adapters have no "
            "dropout, and a file that asks for some is refused. TRL leaves no prompt out; here those of more than "
            "`grpo.max_prompt_length` tokens are.",
        .marks = {"num_generations", "max_completion_length", "reward_funcs", "model_name_or_path", "scale_rewards",
                  "per_device_train_batch_size", "steps_per_generation", "generation_batch_size"},
        .rows =
            {
                {.key = "model_name_or_path", .takes = text, .setting = "model"},
                {.key = "model_revision", .takes = text, .ignored = "the model is a folder"},
                {.key = "dtype", .takes = text, .ignored = "precision says it"},
                {.key = "torch_dtype", .takes = text, .ignored = "precision says it"},
                {.key = "attn_implementation", .takes = text, .ignored = "there is one attention"},
                {.key = "trust_remote_code", .takes = flag, .ignored = "no code of a model is run"},
                {.key = "dataset_name", .takes = text, .becomes = "grpo.prompts, if it is a file", .by = trl_dataset},
                {.key = "dataset_config", .takes = text, .ignored = "prompts are a file"},
                {.key = "dataset_train_split", .takes = text, .ignored = "prompts are a file"},
                {.key = "dataset_test_split", .takes = text, .ignored = "held-out prompts are grpo.val_prompts"},
                {.key = "dataset_streaming", .takes = flag, .ignored = "prompts are a file"},
                {.key = "shuffle_dataset", .takes = flag, .open = "prompts in the order of the file", .off = {"true"}},
                {.key = "reward_funcs", .becomes = "nothing: reward.functions names rewards", .by = trl_rewards},
                {.key = "reward_model_name_or_path", .takes = text, .open = "models that judge answers"},
                {.key = "reward_weights",
                 .takes = numbers,
                 .becomes = "reward.weights, unless other rewards than the file's are named",
                 .by = trl_weights},
                {.key = "multi_objective_aggregation",
                 .takes = text,
                 .open = "advantages of each reward by itself",
                 .off = {"sum_then_normalize"}},
                {.key = "per_device_train_batch_size", .takes = count, .becomes = kBatch},
                {.key = "gradient_accumulation_steps", .takes = count, .becomes = kBatch},
                {.key = "steps_per_generation", .takes = count, .becomes = kBatch},
                {.key = "generation_batch_size", .takes = count, .becomes = kBatch},
                {.key = "per_device_eval_batch_size",
                 .takes = count,
                 .ignored = "grpo.rollout_batch_size answers at a time"},
                {.key = "num_generations", .takes = count, .setting = "grpo.num_generations"},
                {.key = "num_generations_eval", .takes = count, .setting = "grpo.eval_samples"},
                {.key = "num_iterations", .takes = count, .setting = "grpo.num_iterations"},
                {.key = "max_prompt_length", .takes = count, .setting = "grpo.max_prompt_length"},
                {.key = "max_completion_length", .takes = count, .setting = "grpo.max_completion_length"},
                {.key = "temperature", .takes = number, .setting = "grpo.temperature"},
                {.key = "top_p", .takes = number, .setting = "grpo.top_p"},
                {.key = "top_k", .takes = count, .becomes = "grpo.top_k; 0 is none", .by = trl_top_k},
                {.key = "min_p", .takes = number, .setting = "grpo.min_p"},
                {.key = "repetition_penalty",
                 .takes = number,
                 .open = "repetition penalties in training",
                 .off = {"1.0", "1"}},
                {.key = "generation_kwargs.*", .open = "further options of sampling"},
                {.key = "chat_template_kwargs.*", .open = "options of chat templates in training"},
                {.key = "beta", .takes = number, .setting = "grpo.beta"},
                {.key = "use_bias_correction_kl", .takes = flag, .setting = "grpo.use_bias_correction_kl"},
                {.key = "epsilon", .takes = number, .setting = "grpo.epsilon"},
                {.key = "epsilon_high", .takes = number, .setting = "grpo.epsilon_high"},
                {.key = "delta", .takes = number, .setting = "grpo.epsilon_c"},
                {.key = "loss_type",
                 .takes = text,
                 .becomes = "grpo.loss_agg_mode: grpo, dapo, dr_grpo",
                 .by = trl_loss_type},
                {.key = "importance_sampling_level",
                 .takes = text,
                 .becomes = "grpo.loss_algo: token grpo, sequence gspo-token",
                 .by = trl_importance},
                {.key = "scale_rewards", .setting = "grpo.scale_rewards"},
                {.key = "mask_truncated_completions",
                 .takes = flag,
                 .becomes = "grpo.mask_truncated_completions, grpo.masked_completions_count",
                 .by = trl_masks},
                {.key = "sync_ref_model", .takes = flag, .open = "references that follow the model"},
                {.key = "ref_model_mixup_alpha", .takes = number, .ignored = "only sync_ref_model reads it"},
                {.key = "ref_model_sync_steps", .takes = count, .ignored = "only sync_ref_model reads it"},
                {.key = "top_entropy_quantile",
                 .takes = number,
                 .open = "learning from the least certain tokens",
                 .off = {"1.0", "1"}},
                {.key = "entropy_coef", .takes = number, .open = "a reward of entropy", .off = {"0.0"}},
                {.key = "use_vllm", .takes = flag, .ignored = kSampling},
                {.key = "vllm_mode", .takes = text, .ignored = kSampling},
                {.key = "vllm_device", .takes = text, .ignored = kSampling},
                {.key = "vllm_gpu_memory_utilization", .takes = number, .ignored = kSampling},
                {.key = "vllm_tensor_parallel_size", .takes = count, .ignored = kSampling},
                {.key = "vllm_importance_sampling_correction",
                 .takes = flag,
                 .becomes = "grpo.sampler_is, with use_vllm: none, or sequence_mask"},
                {.key = "vllm_importance_sampling_mode", .takes = text, .becomes = "grpo.sampler_is, with use_vllm"},
                {.key = "vllm_importance_sampling_clip_max",
                 .takes = number,
                 .becomes = "grpo.sampler_is_threshold, with use_vllm"},
                {.key = "vllm_importance_sampling_clip_min",
                 .takes = number,
                 .becomes = "grpo.sampler_is_min, with use_vllm"},
                {.key = "vllm_importance_sampling_cap",
                 .takes = number,
                 .becomes = "grpo.sampler_is_threshold, with use_vllm"},
                {.key = "vllm_enable_sleep_mode", .takes = flag, .ignored = kSampling},
                {.key = "vllm_model_impl", .takes = text, .ignored = kSampling},
                {.key = "vllm_max_model_length", .takes = count, .ignored = kSampling},
                {.key = "vllm_server_timeout", .takes = number, .ignored = kSampling},
                {.key = "vllm_group_port", .takes = count, .ignored = kSampling},
                {.key = "vllm_server_base_url", .takes = text, .ignored = kSampling},
                {.key = "vllm_server_host", .takes = text, .ignored = kSampling},
                {.key = "vllm_server_port", .takes = count, .ignored = kSampling},
                {.key = "ds3_gather_for_generation", .takes = flag, .ignored = kSampling},
                {.key = "use_transformers_paged", .takes = flag, .ignored = kSampling},
                {.key = "use_transformers_continuous_batching", .takes = flag, .ignored = kSampling},
                {.key = "off_policy_mask_threshold",
                 .takes = number,
                 .open = "leaving out answers that the model has left behind"},
                {.key = "cache_implementation", .takes = text, .ignored = kSampling},
                {.key = "disable_dropout",
                 .takes = flag,
                 .ignored = "answers and references are computed without dropout"},
                {.key = "learning_rate", .takes = number, .setting = "optimizer.lr"},
                {.key = "weight_decay", .takes = number, .setting = "optimizer.weight_decay"},
                {.key = "adam_beta1", .takes = number, .becomes = "optimizer.betas, if optim is AdamW or Lion"},
                {.key = "adam_beta2", .takes = number, .becomes = "optimizer.betas, if optim is AdamW or Lion"},
                {.key = "adam_epsilon", .takes = number, .becomes = "optimizer.eps, if optim is AdamW"},
                {.key = "optim", .takes = text, .becomes = "optimizer", .by = trl_optimizer},
                {.key = "max_grad_norm", .takes = number, .becomes = "train.max_norm; 0 is none", .by = trl_norm},
                {.key = "lr_scheduler_type",
                 .takes = text,
                 .becomes = "train.lr_decay, to 0 unless lr_scheduler_kwargs says another rate"},
                {.key = "lr_scheduler_kwargs.min_lr",
                 .takes = number,
                 .becomes = "train.min_lr, of cosine_with_min_lr"},
                {.key = "lr_scheduler_kwargs.min_lr_rate",
                 .takes = number,
                 .becomes = "train.min_lr, as a share of optimizer.lr, of cosine_with_min_lr"},
                {.key = "lr_scheduler_kwargs.lr_end", .takes = number, .becomes = "train.min_lr, of polynomial"},
                {.key = "lr_scheduler_kwargs.power", .takes = number, .becomes = "lr_schedule.power, of polynomial"},
                {.key = "lr_scheduler_kwargs.timescale",
                 .takes = count,
                 .becomes = "lr_schedule.timescale, of inverse_sqrt"},
                {.key = "lr_scheduler_kwargs.num_cycles",
                 .takes = number,
                 .open = "cosines of another length; 0.5 is the half that is meant",
                 .off = {"0.5"}},
                {.key = "warmup_steps",
                 .takes = number,
                 .becomes = "train.lr_warmup_steps; below 1 a share of train.max_steps"},
                {.key = "warmup_ratio", .takes = number, .becomes = "train.lr_warmup_steps, of train.max_steps"},
                {.key = "num_train_epochs", .takes = number, .becomes = "train.epochs"},
                {.key = "max_steps", .takes = number, .becomes = "train.max_steps; -1 is none"},
                {.key = "bf16", .takes = flag, .becomes = "precision bf16-mixed", .by = trl_half},
                {.key = "fp16", .takes = flag, .becomes = "precision 16-mixed", .by = trl_half},
                {.key = "activation_checkpointing",
                 .takes = flag,
                 .becomes = "recompute: true full, false none",
                 .by = trl_recompute},
                {.key = "gradient_checkpointing",
                 .takes = flag,
                 .becomes = "recompute: true full, false none",
                 .by = trl_recompute},
                {.key = "gradient_checkpointing_kwargs.*", .ignored = "recomputation has the same bits"},
                {.key = "seed", .takes = count, .setting = "seed"},
                {.key = "output_dir", .takes = text, .setting = "out_dir"},
                {.key = "overwrite_output_dir", .takes = flag, .setting = "overwrite"},
                {.key = "save_steps", .takes = number, .becomes = "train.save_interval", .by = trl_save_steps},
                {.key = "save_strategy", .takes = text, .becomes = "train.save_interval: 0 if it is no"},
                {.key = "save_total_limit", .takes = count, .setting = "save.keep_last"},
                {.key = "evaluation_strategy", .takes = text, .refused = "its name is eval_strategy now"},
                {.key = "eval_strategy",
                 .takes = text,
                 .becomes = "eval.interval: that of eval_steps, or beyond the run if it is no"},
                {.key = "eval_steps",
                 .takes = number,
                 .becomes = "eval.interval, if eval_strategy is steps",
                 .by = [](Reading& r, const Given& entry) { takes_steps(r, entry); }},
                {.key = "logging_steps", .takes = count, .setting = "train.log_interval"},
                {.key = "logging_strategy", .takes = text, .ignored = kMetrics},
                {.key = "logging_first_step", .takes = flag, .ignored = kMetrics},
                {.key = "report_to", .becomes = "train.loggers, if it names tensorboard or csv", .by = loggers_named},
                {.key = "run_name", .takes = text, .setting = "train.run_name"},
                {.key = "log_completions", .takes = flag, .ignored = "the best and the worst answer are in the log"},
                {.key = "num_completions_to_print",
                 .takes = count,
                 .ignored = "the best and the worst answer are in the log"},
                {.key = "remove_unused_columns", .takes = flag, .ignored = "rewards see all keys of a prompt's line"},
                {.key = "push_to_hub", .takes = flag, .ignored = kHub},
                {.key = "hub_model_id", .takes = text, .ignored = kHub},
                {.key = "use_peft", .takes = flag, .becomes = kAdapters},
                {.key = "lora_r", .takes = count, .becomes = kAdapters},
                {.key = "lora_alpha", .takes = number, .becomes = kAdapters},
                {.key = "lora_dropout", .takes = number, .becomes = kAdapters},
                {.key = "lora_target_modules", .becomes = kAdapters},
                {.key = "lora_modules_to_save", .becomes = kAdapters},
                {.key = "lora_task_type", .takes = text, .ignored = "the model says it"},
                {.key = "use_rslora", .takes = flag, .becomes = kAdapters},
                {.key = "use_dora", .takes = flag, .becomes = kAdapters},
                {.key = "load_in_4bit", .takes = flag, .becomes = "quantize", .by = trl_quantize},
                {.key = "load_in_8bit", .takes = flag, .open = "matrices of 8 bits (LLM.int8)"},
                {.key = "bnb_4bit_quant_type", .takes = text, .ignored = "load_in_4bit reads it"},
                {.key = "use_bnb_nested_quant", .takes = flag, .ignored = "load_in_4bit reads it"},
            },
        .begin = begin_trl,
        .finish = finish_trl};
    for (const auto& rows : {trl_cli_rows(), trl_trainer_rows()}) d.rows.insert(d.rows.end(), rows.begin(), rows.end());
    return d;
  }();
  return kDialect;
}

}  // namespace trireme::dialects
