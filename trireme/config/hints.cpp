#include "trireme/config/hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <vector>

#include "trireme/base/text.h"
#include "trireme/config/declaration.h"

namespace trireme::config {

namespace {

struct Word {
  std::string_view word;
  std::string_view sentence;
};

// Matched with the last part of a key: train.learning_rate, learning_rate and optimizer.learning_rate alike.
constexpr std::array kSynonyms = {
    Word{"learning_rate", "the learning rate is optimizer.lr"},
    Word{"lr", "the learning rate is optimizer.lr"},
    Word{"max_lr", "the learning rate is optimizer.lr"},
    Word{"weight_decay", "the weight decay is optimizer.weight_decay"},
    Word{"beta1", "both betas are one setting: optimizer.betas [0.9,0.95]"},
    Word{"beta2", "both betas are one setting: optimizer.betas [0.9,0.95]"},
    Word{"adam_beta1", "both betas are one setting: optimizer.betas [0.9,0.95]"},
    Word{"adam_beta2", "both betas are one setting: optimizer.betas [0.9,0.95]"},
    Word{"batch_size",
         "sequences an optimizer step are train.global_batch_size, sequences a rank computes at once "
         "train.micro_batch_size"},
    Word{"batch",
         "sequences an optimizer step are train.global_batch_size, sequences a rank computes at once "
         "train.micro_batch_size"},
    Word{"train_batch_size", "sequences an optimizer step, over all ranks, are train.global_batch_size"},
    Word{"train_micro_batch_size_per_gpu", "sequences a rank computes at once are train.micro_batch_size"},
    Word{"per_device_train_batch_size", "sequences a rank computes at once are train.micro_batch_size"},
    Word{"gradient_accumulation_steps",
         "accumulation follows from train.global_batch_size, train.micro_batch_size and the number of ranks"},
    Word{"gradient_accumulation_iters",
         "accumulation follows from train.global_batch_size, train.micro_batch_size and the number of ranks"},
    Word{"no_sync", "gradients stay on their rank until a step's last micro-batch with accumulation local"},
    Word{"warmup", "the warm-up is train.lr_warmup_steps"},
    Word{"warmup_steps", "the warm-up is train.lr_warmup_steps"},
    Word{"warmup_iters", "the warm-up is train.lr_warmup_steps"},
    Word{"lr_scheduler", "the shape of the decay is train.lr_decay"},
    Word{"lr_scheduler_type", "the shape of the decay is train.lr_decay"},
    Word{"max_grad_norm", "gradients are clipped by train.max_norm"},
    Word{"grad_clip", "gradients are clipped by train.max_norm"},
    Word{"gradient_clipping", "gradients are clipped by train.max_norm"},
    Word{"clip_grad_norm", "gradients are clipped by train.max_norm"},
    Word{"seq_len", "tokens a sequence are train.max_seq_length"},
    Word{"seq_length", "tokens a sequence are train.max_seq_length"},
    Word{"max_seq_len", "tokens a sequence are train.max_seq_length"},
    Word{"block_size", "tokens a sequence are train.max_seq_length"},
    Word{"context_length", "tokens a sequence are train.max_seq_length"},
    Word{"steps", "the number of optimizer steps is train.max_steps"},
    Word{"num_steps", "the number of optimizer steps is train.max_steps"},
    Word{"iterations", "the number of optimizer steps is train.max_steps"},
    Word{"num_epochs", "passes over the data are train.epochs"},
    Word{"num_train_epochs", "passes over the data are train.epochs"},
    Word{"save_every", "checkpoints are saved every train.save_interval steps"},
    Word{"save_steps", "checkpoints are saved every train.save_interval steps"},
    Word{"async_save", "saving beside training is save.mode async"},
    Word{"save_total_limit", "the number of checkpoints to keep is save.keep_last"},
    Word{"max_to_keep", "the number of checkpoints to keep is save.keep_last"},
    Word{"eval_every", "evaluation comes every eval.interval steps"},
    Word{"eval_interval", "evaluation comes every eval.interval steps"},
    Word{"eval_steps", "evaluation comes every eval.interval steps"},
    Word{"eval_iters", "micro-batches an evaluation are eval.max_iters"},
    Word{"logging_steps", "the log interval is train.log_interval"},
    Word{"output_dir", "the folder for results is out_dir"},
    Word{"dtype", "the number format is precision"},
    Word{"mixed_precision", "the number format is precision"},
    Word{"bf16", "the number format is precision bf16-mixed"},
    Word{"gpus", "ranks on this machine are devices"},
    Word{"num_gpus", "ranks on this machine are devices"},
    Word{"ranks", "ranks on this machine are devices"},
    Word{"world_size", "ranks on this machine are devices, machines are num_nodes"},
    Word{"nproc_per_node", "ranks on this machine are devices"},
    Word{"zero_stage", "sharding is strategy: no_shard, zero1, zero2 or zero3"},
    Word{"sharding_strategy", "sharding is strategy: no_shard, zero1, shard_grad_op, full_shard or hybrid_shard"},
    Word{"data_parallel_replicate_degree", "copies of the weights are mesh.replicate"},
    Word{"data_parallel_shard_degree", "ranks that share one copy of the weights are mesh.shard"},
    Word{"auto_wrap_policy", "what is gathered and reduced as one is wrap.by, wrap.min_num_params or wrap.units"},
    Word{"backward_prefetch", "gathering ahead in backward passes is schedule.prefetch_backward"},
    Word{"forward_prefetch", "gathering ahead in forward passes is schedule.prefetch_forward"},
    Word{"limit_all_gathers", "whole weights on a rank at once are schedule.limit_unsharded"},
    Word{"gradient_checkpointing", "recomputing activations is recompute full"},
    Word{"activation_checkpointing", "recomputing activations is recompute full"},
    Word{"remat", "recomputing activations is recompute full"},
    Word{"tensor_parallel_size", "ranks that share a matrix product are mesh.tp"},
    Word{"tensor_parallel_degree", "ranks that share a matrix product are mesh.tp"},
    Word{"pipeline_parallel_size", "pipeline stages are mesh.pp"},
    Word{"pipeline_parallel_degree", "pipeline stages are mesh.pp"},
    Word{"pipeline_parallel_schedule", "the order of passes is pipeline.schedule"},
    Word{"virtual_pipeline_model_parallel_size", "stages on each rank are pipeline.chunks"},
    Word{"context_parallel_size", "ranks that share one sequence are mesh.cp"},
    Word{"context_parallel_degree", "ranks that share one sequence are mesh.cp"},
    Word{"ulysses_sequence_parallel_size",
         "ranks that share one sequence are mesh.cp, exchanging heads for tokens is mesh.context ulysses"},
    Word{"model_name", "the model's name is model, or stands first: trireme pretrain llama-32m"},
    Word{"model_name_or_path", "the model's name is model, or stands first: trireme pretrain llama-32m"},
    Word{"n_embd", "the width is model.hidden_size"},
    Word{"n_layer", "the number of blocks is model.num_hidden_layers"},
    Word{"n_head", "the number of heads is model.num_attention_heads"},
    Word{"n_query_groups", "key and value heads are model.num_key_value_heads"},
    Word{"num_layers", "the number of blocks is model.num_hidden_layers"},
    Word{"num_heads", "the number of heads is model.num_attention_heads"},
    Word{"tie_embeddings", "sharing the embedding with the head is model.tie_word_embeddings"},
    Word{"max_tokens_to_generate", "tokens to write are generate.max_new_tokens"},
    Word{"num_samples", "one text is written at a time; another one comes with another generate.seed"},
    Word{"dataset", "the source of the text is data, its place data.train_data_path"},
    Word{"data_path", "the text's place is data.train_data_path"},
    Word{"train_data_dir", "the text's place is data.train_data_path"},
    Word{"fp16", "16-bit floats are not built; the number format is precision bf16-mixed or 32-true"},
    Word{"amp", "the number format is precision bf16-mixed"},
    Word{"fp32", "the number format is precision 32-true"},
    Word{"gpu", "what ranks compute on is accelerator cuda, their number devices"},
    Word{"device", "what ranks compute on is accelerator cpu or cuda, their number devices"},
    Word{"use_cpu", "what ranks compute on is accelerator cpu"},
    Word{"no_cuda", "what ranks compute on is accelerator cpu"},
    Word{"deepspeed", "no DeepSpeed file is read: its stages are strategy zero1, zero2 or zero3"},
    Word{"fsdp", "FSDP is strategy full_shard, shard_grad_op, hybrid_shard or hybrid_shard_zero2"},
    Word{"ddp", "DDP is strategy no_shard"},
    Word{"dp", "copies of the weights are mesh.replicate, ranks that share one copy mesh.shard"},
    Word{"optim", "the optimizer's name is optimizer"},
    Word{"min_learning_rate", "the learning rate of the last step is train.min_lr"},
    Word{"eta_min", "the learning rate of the last step is train.min_lr"},
    Word{"lr_min", "the learning rate of the last step is train.min_lr"},
    Word{"max_length", "tokens a sequence are train.max_seq_length, tokens to write generate.max_new_tokens"},
    Word{"cutoff_len", "tokens a sequence are train.max_seq_length"},
    Word{"dataset_name", "nothing is downloaded: the text's place is data.train_data_path"},
    Word{"data_dir", "the text's place is data.train_data_path"},
    Word{"train_file", "the text's place is data.train_data_path"},
    Word{"validation_file", "the held-out text's place is data.val_data_path"},
    Word{"val_data", "the held-out text's place is data.val_data_path"},
    Word{"dataloader_num_workers", "threads that prepare batches are data.num_workers"},
    Word{"resume_from_checkpoint", "going on with a run is resume: true, auto or a folder"},
    Word{"load_checkpoint", "going on with a run is resume: true, auto or a folder"},
    Word{"init_from", "weights to start from are the model: trireme pretrain FOLDER; going on with a run is resume"},
    Word{"checkpoint_dir",
         "weights to start from are the model: trireme pretrain FOLDER; going on with a run is resume"},
    Word{"initial_checkpoint",
         "weights to start from are the model: trireme pretrain FOLDER; going on with a run is resume"},
    Word{"interactive", "a conversation on standard input is generate.chat"},
    Word{"do_sample", "drawing tokens is generate.temperature above 0; 0 takes the likeliest always"},
    Word{"logger", "metrics are always in out_dir/metrics.jsonl, the loss curve in out_dir/loss.svg"},
    Word{"dry_run", "trireme explain config, memory and schedule say beforehand what a run would do"},
    Word{"process_group_timeout", "the time a collective may take is comm.timeout"},
};

// LitGPT's settings for things that are not here, matched with the last part of a key.
constexpr std::array kRefused = {
    Word{"lr_warmup_fraction",
         "a warm-up in fractions of an epoch is not taken: give it in optimizer steps, train.lr_warmup_steps"},
    Word{"ep",
         "the axis ep is reserved for experts, which no model here has; there are mesh.pp, mesh.replicate, mesh.shard, "
         "mesh.cp and mesh.tp"},
    Word{"expert_parallel_size",
         "the axis ep is reserved for experts, which no model here has; mesh.shard divides weights"},
    Word{"lora_", "low-rank adapters are not built yet: all weights are trained"},
    Word{"lora", "low-rank adapters are not built yet: all weights are trained"},
    Word{"qlora", "low-rank adapters are not built yet: all weights are trained"},
    Word{"peft", "low-rank adapters are not built yet: all weights are trained"},
    Word{"load_in_8bit", "quantised weights are not built yet: precision takes 32-true, bf16-mixed and 64-true"},
    Word{"load_in_4bit", "quantised weights are not built yet: precision takes 32-true, bf16-mixed and 64-true"},
    Word{"quantize", "quantised weights are not built yet: precision takes 32-true, bf16-mixed and 64-true"},
    Word{"logger_name",
         "metrics are always in out_dir/metrics.jsonl, the loss curve in out_dir/loss.svg; leave it out"},
    Word{"wandb", "metrics are always in out_dir/metrics.jsonl, the loss curve in out_dir/loss.svg; leave it out"},
    Word{"wandb_", "metrics are always in out_dir/metrics.jsonl, the loss curve in out_dir/loss.svg; leave it out"},
    Word{"use_wandb", "metrics are always in out_dir/metrics.jsonl, the loss curve in out_dir/loss.svg; leave it out"},
    Word{"tensorboard",
         "metrics are always in out_dir/metrics.jsonl, the loss curve in out_dir/loss.svg; leave it out"},
    Word{"mlflow", "metrics are always in out_dir/metrics.jsonl, the loss curve in out_dir/loss.svg; leave it out"},
    Word{"report_to", "metrics are always in out_dir/metrics.jsonl, the loss curve in out_dir/loss.svg; leave it out"},
    Word{"num_beams", "one text is drawn token by token; temperature 0 takes the likeliest always"},
    Word{"repetition_penalty", "tokens are drawn as the model says; there are temperature, top_k and top_p"},
    Word{"min_p", "tokens are drawn as the model says; there are temperature, top_k and top_p"},
    Word{"push_to_hub", "nothing is uploaded: the folders of checkpoints are Hugging Face's already"},
    Word{
        "initial_checkpoint_dir",
        "weights to start from are the model, so the folder stands first: trireme pretrain FOLDER; going on with a run "
        "is --resume FOLDER"},
    Word{"mask_prompt", "of conversations only replies are learned, unless data.learn says otherwise; leave it out"},
    Word{"ignore_index", "tokens that are not learned are marked in the data; leave it out"},
    Word{"tokenizer_dir", "the tokenizer's folder is data.tokenizer"},
    Word{"compiler", "nothing is compiled at run time here; leave it out"},
    Word{"compile", "nothing is compiled at run time here; leave it out"},
    Word{"torch_compile", "nothing is compiled at run time here; leave it out"},
    Word{"flash_attention", "attention is always computed in blocks that keep no scores; leave it out"},
    Word{"use_flash_attn", "attention is always computed in blocks that keep no scores; leave it out"},
    Word{"attn_implementation", "attention is always computed in blocks that keep no scores; leave it out"},
    Word{"jit", "nothing is compiled at run time here; leave it out"},
    Word{"fused", "optimizers are always fused here; leave it out"},
    Word{"amsgrad", "AdamW and Adam are built without AMSGrad; leave it out"},
    Word{"dampening", "SGD is built without dampening; leave it out"},
    Word{"evaluate_example", "no sample is written while training; use trireme generate on a checkpoint"},
};

std::string_view leaf_of(std::string_view key) { return key.substr(key.rfind('.') + 1); }

template <size_t N>
const Word* look_up(const std::array<Word, N>& table, std::string_view word) {
  for (const Word& row : table) {
    const bool prefix = row.word.back() == '_' && word.substr(0, row.word.size()) == row.word;
    if (row.word == word || prefix) return &row;
  }
  return nullptr;
}

struct Nearest {
  std::string text;
  int distance = std::numeric_limits<int>::max();

  void offer(std::string_view typed, std::string_view candidate, const std::string& hint) {
    const auto away = distance_if_near(typed, candidate, candidate);
    if (!away || *away >= distance) return;
    distance = *away;
    text = hint;
  }
};

// "train.global_batch_size, train.micro_batch_size, ..."
std::string first_keys(const Group& group) {
  std::string text;
  int count = 0;
  for (const std::string& key : all_keys())
    if (group_of(key) == group.name && count < 3) text += fmt::format("{}{}", count++ == 0 ? "" : ", ", key);
  return text + ", ...";
}

}  // namespace

std::optional<std::string> refusal_of(std::string_view key) {
  const Word* row = look_up(kRefused, leaf_of(key));
  if (row == nullptr && key.find("lora_") == 0) row = look_up(kRefused, "lora_");
  return row == nullptr ? std::nullopt : std::optional<std::string>(row->sentence);
}

std::optional<int> distance_if_near(std::string_view typed, std::string_view candidate, std::string_view key) {
  // Measured on the last part: train.batch shares half its letters with train.epochs and means something else.
  const int forgiven = std::max(1, static_cast<int>(leaf_of(key).size()) / 3);
  if (std::abs(std::ssize(typed) - std::ssize(candidate)) > forgiven) return std::nullopt;
  const int distance = base::edit_distance(typed, candidate);
  return distance <= forgiven ? std::optional(distance) : std::nullopt;
}

std::string hint_for(std::string_view unknown_key) {
  const std::string_view leaf = leaf_of(unknown_key);

  // The right name in the wrong place: micro_batch_size, model.lr, train.interval.
  std::vector<std::string> elsewhere;
  for (const std::string& key : all_keys()) {
    if (leaf_of(key) == leaf) elsewhere.push_back(key);
  }
  if (const Word* row = look_up(kSynonyms, leaf)) return std::string(row->sentence);
  if (elsewhere.size() == 1) return fmt::format("it is {}", elsewhere[0]);
  if (elsewhere.size() > 1 && elsewhere.size() < 4) {
    std::string text = fmt::format("there are {}", elsewhere[0]);
    for (size_t i = 1; i < elsewhere.size(); ++i) text += " and " + elsewhere[i];
    return text;
  }

  // A slip of the fingers; of equally near ones the whole key wins, then its last part, then other systems' words.
  Nearest nearest;
  for (const std::string& key : all_keys()) nearest.offer(unknown_key, key, "the nearest is " + key);
  for (const std::string& key : all_keys()) nearest.offer(leaf, leaf_of(key), "the nearest is " + key);
  for (const Group& group : groups())
    if (!group.name.empty() && own_leaf(group.name).empty())
      nearest.offer(unknown_key, group.name,
                    fmt::format("the nearest is the group {}: {}", group.name, first_keys(group)));
  for (const Word& row : kSynonyms) nearest.offer(leaf, row.word, std::string(row.sentence));
  if (!nearest.text.empty()) return nearest.text;

  const std::string_view head = unknown_key.substr(0, unknown_key.find('.'));
  std::vector<std::string> siblings;
  for (const std::string& key : all_keys()) {
    if (key.size() > head.size() && key.substr(0, head.size()) == head && key[head.size()] == '.')
      siblings.push_back(key);
  }
  if (!siblings.empty()) return fmt::format("there are {}", base::join(siblings, ", "));
  return "--help lists all settings, docs/settings.md explains them; the first is out_dir";
}

}  // namespace trireme::config
