// DeepSpeed's JSON. Keys, defaults and meanings: DeepSpeed 0.19 (deepspeed/runtime/config.py, constants.py) and its
// page config-json. "auto" is what transformers makes of it: the run's own setting. The rows of its large maps stand in
// deepspeed_*.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "trireme/base/units.h"
#include "trireme/dialects/batch.h"
#include "trireme/dialects/deepspeed_parts.h"
#include "trireme/dialects/dialect.h"
#include "trireme/dialects/offload.h"
#include "trireme/dialects/reasons.h"

namespace trireme::dialects {

using config::Given;

void ds::clip(Reading& r, const Given& entry) {
  const double norm = r.number(entry.key).value_or(0);
  if (norm < 0) return r.refuse(entry, fmt::format("{} {} is negative", entry.key, entry.text), "0 does not clip");
  r.set("train.max_norm", norm == 0 ? "null" : entry.text, entry);
}

namespace {

constexpr std::string_view kBatch =
    "train.global_batch_size and train.micro_batch_size: B = m x g x data-parallel ranks";

void ulysses(Reading& r, const Given& entry) {
  r.set("mesh.cp", entry.text, entry);
  if (r.count(entry.key).value_or(1) > 1) r.set("mesh.context", "ulysses", entry);
}

void tensor_parallel(Reading& r, const Given& entry) {
  const int64_t size = r.count(entry.key).value_or(0);
  size <= 1 ? r.ignore(entry, "it is off") : r.set("mesh.tp", std::to_string(size), entry);
}

void recompute(Reading& r, const Given& entry) {
  const bool is_asked = r.flag(entry.key) || r.count(entry.key).value_or(0) > 0;
  is_asked ? r.set("recompute", "full", entry) : r.ignore(entry, "it is off");
}

void measure(Reading& r, const Given& entry) {
  r.flag(entry.key) ? r.set("profile", "true", entry) : r.ignore(entry, "it is off");
}

void loggers(Reading& r, const Given& entry) {
  if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
  const bool events = r.flag("tensorboard.enabled"), csv = r.flag("csv_monitor.enabled");
  r.set("train.loggers", events && csv ? "[tensorboard, csv]" : events ? "[tensorboard]" : "[csv]", entry);
}

void print_interval(Reading& r, const Given& entry) {
  if (const std::string word = lower(entry.text); word == "inf" || word == "infinity")
    return r.set("train.log_interval", "1000000000000000", entry);  // beyond every run
  if (entry.kind == Given::Kind::list || !base::parse_count(entry.text))
    return r.refuse(entry, fmt::format("steps_per_print wants a whole number, not {}", entry.text),
                    "give a number of steps, or \"inf\" for never");
  r.set("train.log_interval", std::to_string(*base::parse_count(entry.text)), entry);
}

void stages(Reading& r, const Given& entry) { r.set("mesh.pp", entry.text, entry); }

// What it reads as a DeepSpeedConfigModel (config_utils.py). A stage has to be said, because all else depends on it.
bool drops_auto(std::string_view key) {
  constexpr std::string_view kModels[] = {
      "zero_optimization.", "fp16.",           "bf16.",           "tensorboard.",  "wandb.",
      "csv_monitor.",       "comet.",          "flops_profiler.", "comms_logger.", "hybrid_engine.",
      "compile.",           "tensor_parallel."};
  return key != "zero_optimization.stage" &&
         std::ranges::any_of(kModels, [&](std::string_view model) { return key.starts_with(model); });
}

std::vector<Row> other_rows() {
  using enum Takes;
  return {
      {.key = "train_batch_size", .takes = count, .becomes = kBatch, .automatic = "train.global_batch_size is left"},
      {.key = "train_micro_batch_size_per_gpu",
       .takes = count,
       .becomes = kBatch,
       .automatic = "train.micro_batch_size is left"},
      {.key = "gradient_accumulation_steps",
       .takes = count,
       .becomes = kBatch,
       .automatic = "train.global_batch_size and train.micro_batch_size are left"},
      {.key = "gradient_clipping",
       .takes = number,
       .becomes = "train.max_norm: 0 is null",
       .by = ds::clip,
       .automatic = "train.max_norm is left"},
      {.key = "steps_per_print",
       .becomes = "train.log_interval, of a whole number; inf or infinity is never",
       .by = print_interval},
      {.key = "seed", .takes = count, .setting = "seed"},
      {.key = "wall_clock_breakdown",
       .takes = flag,
       .becomes = "profile: what takes time, after thirteen steps",
       .by = measure},
      {.key = "memory_breakdown",
       .takes = flag,
       .becomes = "profile: memory planned by cause at the start, and resident memory of every rank",
       .by = measure},
      {.key = "dump_state", .takes = flag, .ignored = "trireme explain config prints every setting"},
      {.key = "prescale_gradients", .takes = flag, .ignored = "gradients are summed in fp32 and divided once"},
      {.key = "gradient_predivide_factor", .takes = number, .ignored = "gradients are summed in fp32 and divided once"},
      {.key = "gradient_allreduce_op",
       .takes = text,
       .refused = "losses are means over tokens; take mean",
       .off = {"mean"}},
      {.key = "sparse_gradients", .takes = flag, .ignored = "the embedding's gradient is reduced whole"},
      {.key = "zero_allow_untested_optimizer", .takes = flag, .ignored = "every optimizer is tested on every stage"},
      {.key = "zero_force_ds_cpu_optimizer", .takes = flag, .ignored = "there is one optimizer for each name"},
      {.key = "disable_allgather", .takes = flag, .ignored = "weights are always gathered"},
      {.key = "dataloader_drop_last", .takes = flag, .ignored = "samples form an endless sequence of epochs"},
      {.key = "managed_gradient_accumulation", .takes = flag, .ignored = "accumulation is part of the step"},
      {.key = "use_node_local_storage", .takes = flag, .ignored = "out_dir says where checkpoints are"},
      {.key = "disable_python_gc", .takes = flag, .ignored = "there is no Python"},
      {.key = "log_level", .takes = text, .ignored = "what a run says has one level"},
      {.key = "timers.*", .ignored = kTimes},
      {.key = "vocabulary_size", .takes = count, .ignored = "the model has it: model.vocab_size"},
      {.key = "activation_checkpointing.partition_activations",
       .takes = flag,
       .becomes = "recompute full",
       .by = recompute},
      {.key = "activation_checkpointing.number_checkpoints",
       .takes = count,
       .becomes = "recompute full",
       .by = recompute},
      {.key = "activation_checkpointing.cpu_checkpointing", .takes = flag, .becomes = kOffloadActivations},
      {.key = "activation_checkpointing.contiguous_memory_optimization", .takes = flag, .ignored = kArena},
      {.key = "activation_checkpointing.synchronize_checkpoint_boundary", .takes = flag, .ignored = kTimes},
      {.key = "activation_checkpointing.profile", .takes = flag, .ignored = kTimes},
      {.key = "tensor_parallel.autotp_size", .takes = count, .becomes = "mesh.tp", .by = tensor_parallel},
      {.key = "tensor_parallel.tp_size", .takes = count, .becomes = "mesh.tp", .by = tensor_parallel},
      {.key = "tensor_parallel.tp.tp_size", .takes = count, .becomes = "mesh.tp", .by = tensor_parallel},
      {.key = "tensor_parallel.tp_overlap_comm", .takes = flag, .ignored = "sums inside a unit are not overlapped"},
      {.key = "tensor_parallel.preset_model", .takes = text, .ignored = "the model's units know how to be divided"},
      {.key = "tensor_parallel.*", .ignored = "the model's units know how to be divided"},
      {.key = "sequence_parallel_size", .takes = count, .becomes = "mesh.cp, with mesh.context ulysses", .by = ulysses},
      {.key = "data_parallel_size", .takes = count, .ignored = "it follows from the ranks and the other axes"},
      {.key = "pipeline.stages", .takes = count, .becomes = "mesh.pp", .by = stages, .automatic = "mesh.pp is left"},
      {.key = "pipeline.partition", .takes = text, .ignored = "pipeline.split says it: balanced by cost, or given"},
      {.key = "pipeline.seed_layers", .takes = flag, .ignored = "initial weights never depend on the mesh"},
      {.key = "pipeline.activation_checkpoint_interval", .takes = count, .becomes = "recompute full", .by = recompute},
      {.key = "pipeline.*", .ignored = "stages send what is needed"},
      {.key = "checkpoint.tag_validation", .takes = text, .ignored = "all ranks write one checkpoint of one step"},
      {.key = "checkpoint.load_universal", .takes = flag, .ignored = kAnyMesh},
      {.key = "checkpoint.use_node_local_storage", .takes = flag, .ignored = "out_dir says where checkpoints are"},
      {.key = "checkpoint.parallel_write.pipeline_stage", .takes = flag, .ignored = "all ranks always write at once"},
      {.key = "checkpoint.*", .ignored = "checkpoints are set by save.*"},
      {.key = "flops_profiler.enabled", .takes = flag, .becomes = "profile: rates of all operations", .by = measure},
      {.key = "flops_profiler.*", .ignored = kTimes},
      {.key = "comms_logger.enabled", .takes = flag, .becomes = "profile: communication on every rank", .by = measure},
      {.key = "comms_logger.*", .ignored = "trireme explain mesh says what ranks send; profile.schedule measures it"},
      {.key = "tensorboard.enabled", .takes = flag, .becomes = "train.loggers: tensorboard", .by = loggers},
      {.key = "csv_monitor.enabled", .takes = flag, .becomes = "train.loggers: csv", .by = loggers},
      {.key = "tensorboard.*", .ignored = "events lie in out_dir/logs/tensorboard"},
      {.key = "wandb.*", .ignored = kMetrics},
      {.key = "csv_monitor.*", .ignored = kMetrics},
      {.key = "comet.*", .ignored = kMetrics},
      {.key = "monitor_config.*", .ignored = kMetrics},
      {.key = "aio.queue_depth", .takes = count, .becomes = kOffloadBuffers},
      {.key = "aio.*", .ignored = "a disk moves blocks of 1 MiB, as many at once as aio.queue_depth says"},
      {.key = "elasticity.enabled",
       .takes = flag,
       .refused = "the batch does not change with the ranks here: a job on 2 to 4 machines is --nnodes 2:4"},
      {.key = "elasticity.*", .ignored = "only elasticity reads it"},
      {.key = "curriculum_learning.enabled", .takes = flag, .open = "curricula; leave it out"},
      {.key = "curriculum_learning.*", .ignored = "only curriculum_learning reads it"},
      {.key = "data_efficiency.enabled", .takes = flag, .open = "data routing; leave it out"},
      {.key = "data_efficiency.*", .ignored = "only data_efficiency reads it"},
      {.key = "progressive_layer_drop.enabled", .takes = flag, .open = "dropping layers; leave it out"},
      {.key = "progressive_layer_drop.*", .ignored = "only progressive_layer_drop reads it"},
      {.key = "eigenvalue.enabled", .takes = flag, .open = "eigenvalues of the Hessian; leave it out"},
      {.key = "eigenvalue.*", .ignored = "only eigenvalue reads it"},
      {.key = "autotuning.enabled",
       .takes = flag,
       .refused = "nothing is tuned by trial: trireme explain memory and schedule say what a setting costs"},
      {.key = "autotuning.*", .ignored = "only autotuning reads it"},
      {.key = "hybrid_engine.enabled", .takes = flag, .open = "generation inside training; leave it out"},
      {.key = "hybrid_engine.*", .ignored = "only hybrid_engine reads it"},
      {.key = "compile.*", .ignored = "nothing is compiled at run time here"},
      {.key = "sparse_attention.*", .open = "sparse attention; leave it out"},
      {.key = "compression_training.*", .open = "compression while training; leave it out"},
      {.key = "zenflow.*", .open = "ZenFlow; leave it out"},
      {.key = "expert_parallel.enabled", .takes = flag, .open = "mixtures of experts; leave it out"},
      {.key = "expert_parallel.*", .ignored = "only expert_parallel reads it"},
      {.key = "use_data_before_expert_parallelism", .takes = flag, .ignored = "there are no experts to place"},
      {.key = "weight_quantization.*", .open = "quantised weights; leave it out"},
      {.key = "datastates_ckpt.*", .ignored = "checkpoints are set by save.*"},
      {.key = "nebula.*", .ignored = "checkpoints are set by save.*"},
  };
}

void finish_deepspeed(Reading& r) {
  ds::finish_precision(r);
  set_batch(r, "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps");
  ds::suggest_rate(r);  // before shares of it
  ds::finish_scheduler(r);
  ds::finish_zero(r);
  ds::finish_optimizer(r);
  r.suggest("strategy", "no_shard");
  finish_offload(r);
  if (!r.is_left("gradient_clipping")) r.suggest("train.max_norm", "1.0");
}

}  // namespace

const Dialect& deepspeed() {
  static const Dialect kDialect = [] {
    Dialect d{
        .name = "deepspeed",
        .system = "DeepSpeed",
        .about =
            "A JSON file, as `--deepspeed_config` or transformers' `deepspeed` takes it: "
            "`trireme pretrain MODEL --config ds.json --devices 8`. `auto` is what transformers makes of it: "
            "the run's own setting counts, or DeepSpeed's default. Keys that begin with `_` are comments. Norms and "
            "biases are not decayed here, unless `optimizer.groups` gives them a decay.",
        .marks = {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
                  "zero_optimization", "fp16", "bf16", "bfloat16", "gradient_clipping", "steps_per_print",
                  "wall_clock_breakdown", "zero_allow_untested_optimizer", "scheduler", "tensor_parallel",
                  "activation_checkpointing", "sequence_parallel_size", "torch_autocast", "prescale_gradients",
                  "optimizer.type", "optimizer.params"},
        .is_json = true,
        .file_options = {"deepspeed", "deepspeed_config"},
        .renamed_maps = {{"bfloat16", "bf16"}},
        .drops_auto = drops_auto,
        .finish = finish_deepspeed};
    for (const auto& rows :
         {other_rows(), ds::precision_rows(), ds::zero_rows(), ds::optimizer_rows(), ds::scheduler_rows()})
      d.rows.insert(d.rows.end(), rows.begin(), rows.end());
    return d;
  }();
  return kDialect;
}

}  // namespace trireme::dialects
