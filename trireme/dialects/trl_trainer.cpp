#include "trireme/dialects/trl_trainer.h"

#include "trireme/dialects/reasons.h"

namespace trireme::dialects {

std::vector<Row> trl_trainer_rows() {
  using enum Takes;
  constexpr std::string_view kSampling = "answers are sampled by the engine that trains, in the same memory";
  constexpr std::string_view kHub = "nothing is uploaded";
  constexpr std::string_view kReads = "data are read ahead of the steps";
  constexpr std::string_view kRewarded = "an evaluation is of rewards";
  constexpr std::string_view kCommand = "the command says it";
  constexpr std::string_view kBest = "save.keep_best goes by the rewards of evaluations";
  constexpr std::string_view kFused = "operations are fused already";
  constexpr std::string_view kRanks = "strategy and mesh say how ranks work together";
  constexpr std::string_view kLauncher = "the launcher says it";
  constexpr std::string_view kSapo = "only loss_type sapo reads it";
  constexpr std::string_view kVespo = "only loss_type vespo reads it";
  constexpr std::string_view kEntropy = "only use_adaptive_entropy reads it";
  return {
      // Learning.
      {.key = "lr_scheduler_kwargs.*", .open = "options of schedules: lr_schedule.* has Trireme's"},
      {.key = "optim_args", .takes = text, .open = "options of optimizers: optimizer.* has Trireme's"},
      {.key = "optim_target_modules", .open = "GaLore and APOLLO"},
      {.key = "label_smoothing_factor", .takes = number, .ignored = "answers have no labels"},
      {.key = "average_tokens_across_devices", .takes = flag, .ignored = "losses are means over all ranks"},
      {.key = "neftune_noise_alpha", .takes = number, .open = "noise on embeddings while learning from rewards"},
      {.key = "cast_lm_head_to_fp32", .takes = flag, .open = "a head in float32 on a model in fewer bits"},
      {.key = "router_aux_loss_coef", .takes = number, .ignored = "models have no experts"},
      {.key = "use_adaptive_entropy", .takes = flag, .open = "a reward of entropy"},
      {.key = "entropy_coef_min", .takes = number, .ignored = kEntropy},
      {.key = "entropy_coef_max", .takes = number, .ignored = kEntropy},
      {.key = "entropy_coef_delta", .takes = number, .ignored = kEntropy},
      {.key = "entropy_target", .takes = number, .ignored = kEntropy},
      {.key = "sapo_temperature_neg", .takes = number, .ignored = kSapo},
      {.key = "sapo_temperature_pos", .takes = number, .ignored = kSapo},
      {.key = "vespo_k_pos", .takes = number, .ignored = kVespo},
      {.key = "vespo_k_neg", .takes = number, .ignored = kVespo},
      {.key = "vespo_lambda_pos", .takes = number, .ignored = kVespo},
      {.key = "vespo_lambda_neg", .takes = number, .ignored = kVespo},
      {.key = "lora_target_parameters", .open = "adapters on parameters by name"},
      {.key = "model_init_kwargs.*", .ignored = "the model is a folder"},
      // Answers.
      {.key = "vllm_structured_outputs_regex", .takes = text, .open = "answers that fit a regular expression"},
      {.key = "max_tool_calling_iterations", .takes = count, .ignored = "answers call no tools"},
      {.key = "transformers_continuous_batching_config.*", .ignored = kSampling},
      {.key = "pad_to_multiple_of", .ignored = "rows are as long as the plan has them"},
      // Arithmetic and memory.
      {.key = "tf32", .takes = flag, .ignored = "float32 is multiplied in float32"},
      {.key = "bf16_full_eval", .takes = flag, .ignored = "evaluations have the precision of training"},
      {.key = "fp16_full_eval", .takes = flag, .ignored = "evaluations have the precision of training"},
      {.key = "activation_checkpointing_kwargs.*", .ignored = "recomputation has the same bits"},
      {.key = "torch_compile", .takes = flag, .ignored = kCompiled},
      {.key = "torch_compile_backend", .takes = text, .ignored = kCompiled},
      {.key = "torch_compile_mode", .takes = text, .ignored = kCompiled},
      {.key = "use_liger_kernel", .takes = flag, .ignored = kFused},
      {.key = "liger_kernel_config.*", .ignored = kFused},
      {.key = "use_cache", .takes = flag, .ignored = "sampling has a cache, and training needs none"},
      {.key = "torch_empty_cache_steps", .takes = count, .ignored = kArena},
      {.key = "auto_find_batch_size", .takes = flag, .ignored = "trireme plan --fit finds the largest batch"},
      {.key = "skip_memory_metrics", .takes = flag, .ignored = kMetrics},
      {.key = "bnb_4bit_quant_storage", .takes = text, .ignored = "codes lie in bytes"},
      {.key = "use_cpu", .takes = flag, .ignored = "accelerator says what ranks compute on"},
      // Order of data.
      {.key = "data_seed", .takes = count, .ignored = "seed says the order of prompts"},
      {.key = "train_sampling_strategy", .takes = text, .open = "another order of prompts", .off = {"random"}},
      {.key = "length_column_name", .takes = text, .ignored = "only other values of train_sampling_strategy read it"},
      {.key = "ignore_data_skip", .takes = flag, .open = "prompts from the first one after a resume"},
      {.key = "dataloader_drop_last", .takes = flag, .ignored = "steps have whole batches"},
      {.key = "dataloader_num_workers", .takes = count, .ignored = kReads},
      {.key = "dataloader_pin_memory", .takes = flag, .ignored = kReads},
      {.key = "dataloader_persistent_workers", .takes = flag, .ignored = kReads},
      {.key = "dataloader_prefetch_factor", .takes = count, .ignored = kReads},
      {.key = "dataloader_multiprocessing_context", .takes = text, .ignored = kReads},
      {.key = "dataloader_in_order", .takes = flag, .ignored = kReads},
      {.key = "label_names", .ignored = "answers have no labels"},
      // Ranks.
      {.key = "fsdp", .takes = text, .refused = "say --strategy full_shard, and so on"},
      {.key = "fsdp_config.*", .ignored = "only fsdp reads it"},
      {.key = "deepspeed.*", .refused = "name DeepSpeed's file on the command line: --deepspeed_config FILE"},
      {.key = "parallelism_config.*", .refused = "say the mesh: mesh.shard, mesh.tp and mesh.cp"},
      {.key = "accelerator_config.*", .ignored = kRanks},
      {.key = "ddp_find_unused_parameters", .takes = flag, .ignored = kRanks},
      {.key = "ddp_bucket_cap_mb", .takes = count, .ignored = kRanks},
      {.key = "ddp_broadcast_buffers", .takes = flag, .ignored = kRanks},
      {.key = "ddp_static_graph", .takes = flag, .ignored = kRanks},
      {.key = "ddp_backend", .takes = text, .ignored = "comm.backend says it"},
      {.key = "ddp_timeout", .takes = count, .ignored = "comm.timeout says it"},
      {.key = "local_rank", .takes = number, .ignored = kLauncher},
      {.key = "ignore_bias_buffers", .takes = flag, .ignored = kRanks},
      {.key = "full_determinism", .takes = flag, .ignored = "the same run has the same bits"},
      // Evaluations.
      {.key = "eval_on_start", .takes = flag, .setting = "eval.initial_validation"},
      {.key = "eval_delay", .takes = number, .open = "evaluations that begin later"},
      {.key = "prediction_loss_only", .takes = flag, .ignored = kRewarded},
      {.key = "eval_do_concat_batches", .takes = flag, .ignored = kRewarded},
      {.key = "eval_use_gather_object", .takes = flag, .ignored = kRewarded},
      {.key = "eval_accumulation_steps", .takes = count, .ignored = kRewarded},
      {.key = "include_for_metrics", .ignored = kRewarded},
      {.key = "batch_eval_metrics", .takes = flag, .ignored = kRewarded},
      // Checkpoints.
      {.key = "save_only_model", .takes = flag, .ignored = "every checkpoint can be resumed"},
      {.key = "save_on_each_node", .takes = flag, .ignored = kOneFolder},
      {.key = "enable_jit_checkpoint", .takes = flag, .ignored = "a run that is stopped saves"},
      {.key = "load_best_model_at_end", .takes = flag, .ignored = kBest},
      {.key = "metric_for_best_model", .takes = text, .ignored = kBest},
      {.key = "greater_is_better", .takes = flag, .ignored = kBest},
      {.key = "resume_from_checkpoint", .takes = text, .refused = "say --resume FOLDER, or --resume auto"},
      {.key = "restore_callback_states_from_checkpoint", .takes = flag, .ignored = "there are no callbacks"},
      // Telling.
      {.key = "log_on_each_node", .takes = flag, .ignored = kMetrics},
      {.key = "logging_nan_inf_filter", .takes = flag, .ignored = kMetrics},
      {.key = "include_num_input_tokens_seen", .takes = text, .ignored = kMetrics},
      {.key = "log_level", .takes = text, .ignored = kMetrics},
      {.key = "log_level_replica", .takes = text, .ignored = kMetrics},
      {.key = "disable_tqdm", .takes = flag, .ignored = kMetrics},
      {.key = "project", .takes = text, .ignored = kMetrics},
      {.key = "trackio_space_id", .takes = text, .ignored = kHub},
      {.key = "trackio_bucket_id", .takes = text, .ignored = kHub},
      {.key = "trackio_static_space_id", .takes = text, .ignored = kHub},
      {.key = "log_multimodal", .takes = flag, .ignored = "the best and the worst answer are in the log"},
      {.key = "log_unique_prompts", .takes = flag, .ignored = "the best and the worst answer are in the log"},
      {.key = "log_completions_hub_repo", .takes = text, .ignored = kHub},
      {.key = "debug", .ignored = "trireme doctor and --profile look into a run"},
      {.key = "hub_token", .takes = text, .ignored = kHub},
      {.key = "hub_private_repo", .takes = flag, .ignored = kHub},
      {.key = "hub_strategy", .takes = text, .ignored = kHub},
      {.key = "hub_always_push", .takes = flag, .ignored = kHub},
      {.key = "hub_revision", .takes = text, .ignored = kHub},
      {.key = "do_train", .takes = flag, .ignored = kCommand},
      {.key = "do_eval", .takes = flag, .ignored = kCommand},
      {.key = "do_predict", .takes = flag, .ignored = kCommand},
  };
}

}  // namespace trireme::dialects
