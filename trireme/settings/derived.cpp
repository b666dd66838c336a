#include "trireme/settings/derived.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "trireme/schedule/pipeline.h"

namespace trireme {

model::NumberFormat number_format(model::NumberFormat precision, bool has_bf16) {
  if (precision != model::NumberFormat::automatic) return precision;
  return has_bf16 ? model::NumberFormat::bf16_mixed : model::NumberFormat::fp32_true;
}

model::NumberFormat number_format(const Settings& settings) {
  if (settings.accelerator == engine::Accelerator::cuda) return number_format(settings.precision.format, true);
  return number_format(settings.precision.format);
}

bool scales_loss(const Settings& settings) {
  const model::NumberFormat format = number_format(settings);
  return format == model::NumberFormat::fp16_mixed ||
         (format == model::NumberFormat::fp16_true && settings.precision.loss_scale.has_value());
}

double scaled_lr(const Settings& settings) {
  return optim::scaled_lr(settings.optimizer, settings.train.global_batch_size);
}

double lowest_lr(const Settings& settings) {
  return settings.train.min_lr.value_or(optim::default_min_lr(settings.train.lr_decay, scaled_lr(settings)));
}

int64_t warmup_steps(const Settings& settings) {
  return settings.train.lr_warmup_steps.value_or(optim::default_warmup_steps(settings.train.lr_decay));
}

int64_t MeshShape::product() const {
  int64_t all = 1;
  for (const int64_t size : {pp, replicate, shard, cp, tp})
    if (__builtin_mul_overflow(all, size, &all)) return std::numeric_limits<int64_t>::max();
  return all;
}

MeshShape mesh_shape(const Settings& settings, int64_t world_size) {
  const plan::MeshSettings& mesh = settings.mesh;
  MeshShape shape{mesh.pp.value_or(1), mesh.replicate.value_or(1), mesh.shard.value_or(1), mesh.cp.value_or(1),
                  mesh.tp.value_or(1)};
  const auto rest = [&] { return std::max<int64_t>(world_size / std::max<int64_t>(shape.product(), 1), 1); };
  if (is_hybrid(settings.strategy) && !mesh.shard && !mesh.replicate && settings.num_nodes > 1) {
    const int64_t machine = world_size / settings.num_nodes, stage = world_size / std::max<int64_t>(shape.pp, 1);
    shape.shard = std::max<int64_t>(std::min(machine, stage) / (shape.cp * shape.tp), 1);
    shape.replicate = rest();
    return shape;
  }
  // The last resort for a strategy whose own axis is given is the other data-parallel axis.
  const bool no_shard = settings.strategy == plan::Strategy::no_shard;
  if (!no_shard && !mesh.shard) {
    shape.shard = rest();
  } else if (!mesh.replicate) {
    shape.replicate = rest();
  }
  return shape;
}

int64_t stages_per_rank(const Settings& settings, const MeshShape& mesh) {
  if (mesh.pp == 1) return 1;
  if (settings.pipeline.chunks > 0) return settings.pipeline.chunks;
  const schedule::PipelineSchedule* schedule = schedule::find_pipeline_schedule(settings.pipeline.schedule);
  return schedule == nullptr ? 1 : schedule->default_chunks;
}

int64_t accumulation(const Settings& settings, int64_t world_size) {
  const int64_t micro_batches = settings.train.global_batch_size / settings.train.micro_batch_size;
  const int64_t ranks = mesh_shape(settings, world_size).data_parallel_ranks();
  return (micro_batches + ranks - 1) / ranks;
}

std::string describe_accumulation(const Settings& settings, int64_t world_size) {
  const int64_t most = accumulation(settings, world_size), micro = settings.train.micro_batch_size;
  const int64_t full = most * micro * mesh_shape(settings, world_size).data_parallel_ranks();
  return fmt::format("{}{} {}", settings.train.global_batch_size < full ? "at most " : "", most,
                     most == 1 ? "micro-batch" : "micro-batches");
}

}  // namespace trireme
