// Hydra's overrides as agent-tunix prints them: `model=gemma3_1b model.mesh_shape=[[4,2],[fsdp,tp]] training.*`.
// Sources: agent-tunix conf/, and its page on distributed training, four of whose keys are not in conf/; tunix
// cli/base_config.yaml.
#include <fmt/format.h>

#include "trireme/dialects/deepspeed_parts.h"
#include "trireme/dialects/hydra_rules.h"
#include "trireme/dialects/number_formats.h"
#include "trireme/dialects/reasons.h"

namespace trireme::dialects {
namespace {

using config::Given;

void mesh_shape(Reading& r, const Given& entry) { set_mesh(r, entry.text, entry); }

void run_dir(Reading& r, const Given& entry) {
  if (entry.text.find("${") != std::string::npos) return r.ignore(entry, "a run begins in outputs/PROJECT/DATE/TIME");
  r.set("out_dir", entry.text, entry);
}

void size_of_family(Reading& r, const Given& entry) {
  r.set("model", fmt::format("{}_{}", r.text("model.model_family", "gemma3"), entry.text), entry);
}

// tunix's names of matrices in an expression. Those of attention are other words than ours.
void adapted_modules(Reading& r, const Given& entry) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"attn_vec_einsum", "o_proj"},
                                                                      {"qkv_einsum", "(q_proj|k_proj|v_proj)"},
                                                                      {"kv_einsum", "(k_proj|v_proj)"},
                                                                      {"q_einsum", "q_proj"}};
  std::string pattern = entry.text;
  for (const auto& [theirs, ours] : kNames)
    for (size_t at; (at = pattern.find(theirs)) != std::string::npos;) pattern.replace(at, theirs.size(), ours);
  if (pattern.find("einsum") != std::string::npos)
    return r.refuse(
        entry, fmt::format("{} names matrices by a part that is not known here", entry.text),
        "write each of attention's by its whole name: q_einsum, kv_einsum and attn_vec_einsum, or q_proj, k_proj, "
        "v_proj and o_proj");
  r.set("lora.target_modules", pattern, entry);
}

// How answers are sampled: tunix's names beside ours.
void of_answers(Reading& r, const Given& entry) {
  if (!learns_from_rewards(r)) return r.ignore(entry, "only trireme grpo samples while training");
  constexpr std::pair<std::string_view, std::string_view> kSettings[] = {
      {"generation.max_prompt_length", "grpo.max_prompt_length"},
      {"generation.max_generation_steps", "grpo.max_completion_length"},
      {"generation.temperature", "grpo.temperature"},
      {"generation.top_p", "grpo.top_p"},
      {"generation.top_k", "grpo.top_k"}};
  for (const auto& [theirs, ours] : kSettings)
    if (entry.key == theirs) r.set(ours, entry.text, entry);
}

void data_path(Reading& r, const Given& entry) {
  const bool trains = entry.key == "training.train_data_dir";
  if (learns_from_rewards(r)) return r.set(trains ? "grpo.prompts" : "grpo.val_prompts", entry.text, entry);
  r.set(trains ? "data.train_data_path" : "data.val_data_path", entry.text, entry);
}

// Gradients add up on their rank for k micro-batches: 1 and all of a step's can be had.
void sync_every(Reading& r, const Given& entry) {
  const int64_t every = r.count(entry.key).value_or(0),
                steps = r.count("training.gradient_accumulation_steps").value_or(1);
  if (every < 1 || steps % every != 0)
    return r.refuse(entry,
                    fmt::format("{} {} does not divide the {} micro-batches of a step", entry.key, entry.text, steps),
                    "it must divide training.gradient_accumulation_steps");
  if (every == 1) return r.set("accumulation", "sharded", entry);
  if (every != steps)
    return r.refuse_open(
        entry, fmt::format("reducing more than once a step, but not after each micro-batch; say 1 or {}", steps));
  r.set("reduce", "fast", entry);
  r.set("accumulation", "local", entry);
}

}  // namespace

const Dialect& hydra() {
  using enum Takes;
  constexpr std::string_view kBatch =
      "train.micro_batch_size: its share of a data-parallel rank; train.global_batch_size: times the accumulation. For "
      "trireme grpo: grpo.batch_size, prompts";
  constexpr std::string_view kProject = "out_dir: outputs/NAME/DATE/TIME, unless another key says it";
  static const Dialect kDialect{
      .name = "hydra",
      .system = "agent-tunix",
      .about =
          "Hydra's overrides as agent-tunix has them, on the command line or as YAML: `trireme pretrain "
          "model=gemma3_1b model.mesh_shape=[[4,2],[fsdp,tp]]`. The number of ranks follows from the mesh. A run that "
          "begins so lies in outputs/tunix-grpo/DATE/TIME, as Hydra has it, with its log in train.log and "
          "TensorBoard's "
          "events; under another launcher, on several machines or with resume it lies in out_dir as elsewhere. A file "
          "in "
          "a folder `model`, `optimizer`, `scheduler`, `grpo`, `generation` or `training` is one of that group, unless "
          "it "
          "says `# @package _global_`.",
      .marks = {"model.mesh_shape", "mesh.axis_names", "model.model_family", "model.model_size",
                "scheduler.warmup_steps_ratio", "training.num_batches", "defaults", "hydra", "wandb_disabled",
                "training.micro_batch_size", "training.sync_gradients_every"},
      .words = Words::all,
      .rows =
          {
              {.key = "experiment", .takes = text, .becomes = "the keys of conf/experiment/NAME.yaml"},
              {.key = "defaults",
               .ignored = "files of groups that lie beside this one are read with it; give others with --config"},
              {.key = "debug", .takes = flag, .ignored = "every plan is checked"},
              {.key = "project_name", .takes = text, .becomes = kProject},
              {.key = "experiment_name", .takes = text, .ignored = "out_dir says which run it is"},
              {.key = "tags", .ignored = kMetrics},
              {.key = "wandb_disabled", .takes = flag, .ignored = kMetrics},
              {.key = "model.mesh_shape",
               .becomes = "mesh.shard (fsdp), mesh.tp (tp), mesh.cp (sp), mesh.replicate (dp), and devices",
               .by = mesh_shape},
              {.key = "mesh.shape",
               .takes = anything,
               .becomes = "the mesh, with mesh.axis_names: tunix's own form of model.mesh_shape"},
              {.key = "mesh.axis_names", .takes = anything, .becomes = "the mesh, with mesh.shape"},
              {.key = "mesh.allocation_policy", .takes = text, .ignored = "ranks have one order: tp is innermost"},
              {.key = "model.model_family", .takes = text, .ignored = "model.model_size reads it"},
              {.key = "model.model_size", .takes = text, .becomes = "model", .by = size_of_family},
              {.key = "model.lora_rank", .takes = count, .setting = "lora.r"},
              {.key = "model.lora_alpha", .takes = number, .setting = "lora.alpha"},
              {.key = "model.lora_module_path",
               .takes = text,
               .becomes = "lora.target_modules, with q_einsum, kv_einsum and attn_vec_einsum as q_proj, k_proj and "
                          "v_proj, o_proj",
               .by = adapted_modules},
              {.key = "optimizer.learning_rate", .takes = number, .setting = "optimizer.lr"},
              {.key = "optimizer.beta1", .takes = number, .becomes = "optimizer.betas"},
              {.key = "optimizer.beta2", .takes = number, .becomes = "optimizer.betas"},
              {.key = "optimizer.weight_decay", .takes = number, .setting = "optimizer.weight_decay"},
              {.key = "optimizer.warmup_ratio",
               .takes = number,
               .becomes = "train.lr_warmup_steps, of train.max_steps"},
              {.key = "optimizer.max_grad_norm", .takes = number, .becomes = "train.max_norm", .by = ds::clip},
              {.key = "scheduler.warmup_steps_ratio",
               .takes = number,
               .becomes = "train.lr_warmup_steps, of train.max_steps"},
              {.key = "scheduler.decay_steps_ratio", .takes = number, .ignored = "the decay ends with the run"},
              {.key = "generation.max_prompt_length",
               .takes = count,
               .becomes = "grpo.max_prompt_length, for trireme grpo",
               .by = of_answers},
              {.key = "generation.max_generation_steps",
               .takes = count,
               .becomes = "grpo.max_completion_length, for trireme grpo",
               .by = of_answers},
              {.key = "generation.temperature",
               .takes = number,
               .becomes = "grpo.temperature, for trireme grpo",
               .by = of_answers},
              {.key = "generation.top_p", .takes = number, .becomes = "grpo.top_p, for trireme grpo", .by = of_answers},
              {.key = "generation.top_k", .takes = count, .becomes = "grpo.top_k, for trireme grpo", .by = of_answers},
              {.key = "generation.eos_tokens",
               .takes = anything,
               .ignored = "the model's folder says what ends a text"},
              {.key = "generation.*", .ignored = "answers are sampled by the settings grpo.*"},
              {.key = "training.train_data_dir",
               .takes = text,
               .becomes = "data.train_data_path; grpo.prompts for trireme grpo",
               .by = data_path},
              {.key = "training.test_data_dir",
               .takes = text,
               .becomes = "data.val_data_path; grpo.val_prompts for trireme grpo",
               .by = data_path},
              {.key = "training.data_source", .takes = text, .ignored = "the data is given by data.train_data_path"},
              {.key = "training.train_fraction",
               .takes = number,
               .becomes = "train.max_steps, or data.val_split_fraction"},
              {.key = "training.micro_batch_size", .takes = count, .becomes = kBatch},
              {.key = "training.gradient_accumulation_steps", .takes = count, .becomes = kBatch},
              {.key = "training.sync_gradients_every",
               .takes = count,
               .becomes = "accumulation: 1 sharded; all micro-batches of a step local, with reduce fast",
               .by = sync_every},
              {.key = "training.mixed_precision",
               .takes = text,
               .becomes = "precision: bf16 bf16-mixed, fp16 16-mixed, fp8 fp8-mixed, no 32-true",
               .by = set_format},
              {.key = "training.profile_communication",
               .takes = flag,
               .becomes = "profile.schedule: communication.json in out_dir"},
              {.key = "training.num_batches", .takes = count, .becomes = "train.max_steps"},
              {.key = "training.num_epochs", .takes = count, .becomes = "train.max_steps, or train.epochs"},
              {.key = "training.max_steps", .takes = count, .setting = "train.max_steps"},
              {.key = "training.num_test_batches", .takes = count, .setting = "eval.max_iters"},
              {.key = "training.eval_every_n_steps", .takes = count, .setting = "eval.interval"},
              {.key = "training.checkpoint_dir", .takes = text, .setting = "out_dir"},
              {.key = "training.intermediate_checkpoint_dir",
               .takes = text,
               .ignored = "all checkpoints of a run lie in out_dir"},
              {.key = "training.save_interval_steps", .takes = count, .setting = "train.save_interval"},
              {.key = "training.max_checkpoints_to_keep", .takes = count, .setting = "save.keep_last"},
              {.key = "training.log_dir", .takes = text, .ignored = kMetrics},
              {.key = "training.flush_every_n_steps", .takes = count, .ignored = kMetrics},
              {.key = "training.wandb_project", .takes = text, .becomes = kProject},
              {.key = "hydra.run.dir",
               .takes = text,
               .becomes = "out_dir; with ${...} in it, outputs/PROJECT/DATE/TIME",
               .by = run_dir},
              {.key = "hydra.*", .ignored = "it concerns Hydra's own output"},
          },
      .takes_native_keys = true,
      .one_value_each = true,
      .finish = finish_hydra};
  return kDialect;
}

}  // namespace trireme::dialects
