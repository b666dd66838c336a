#include "trireme/settings/mesh_traffic.h"

#include <fmt/format.h>

#include "trireme/base/text.h"
#include "trireme/schedule/pipeline.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/validate.h"

namespace trireme {
namespace {

// "once" or "8 times".
std::string times(int64_t count) { return count == 1 ? "once" : fmt::format("{} times", base::human_count(count)); }

std::string micro_batches_text(int64_t count) {
  return fmt::format("{} micro-batch{}", base::human_count(count), count == 1 ? "" : "es");
}

struct Step {
  const Settings& settings;
  MeshShape mesh;
  int64_t micro_batches;  // of a data-parallel rank

  bool gathers_each_use() const { return plan::on_one_copy(settings.strategy) == plan::Strategy::full_shard; }
  int64_t reductions() const { return settings.accumulation == plan::Accumulation::local ? 1 : micro_batches; }
};

AxisTraffic pipeline(const Step& step) {
  // At the turning point of a V, two consecutive stages are on one rank.
  const schedule::PipelineSchedule* schedule = schedule::find_pipeline_schedule(step.settings.pipeline.schedule);
  const int64_t turns = schedule != nullptr && schedule->v_shape ? 1 : 0;
  const int64_t boundaries = step.mesh.pp * stages_per_rank(step.settings, step.mesh) - 1 - turns;
  return {"pp", step.mesh.pp, "activations between stages, their gradients back",
          fmt::format("{} x {}, each way", boundaries == 1 ? "1 boundary" : fmt::format("{} boundaries", boundaries),
                      micro_batches_text(step.micro_batches))};
}

AxisTraffic copies(const Step& step) {
  if (step.settings.strategy == plan::Strategy::no_shard)
    return {"replicate", step.mesh.replicate, "gradients", times(step.reductions())};
  // Ordered: a micro-batch's gradient is folded over all copies at once, as one rank would do it.
  if (step.settings.reduce == plan::Reduce::ordered)
    return {"replicate", step.mesh.replicate, "gradients of shards, then their sums",
            fmt::format("gradients {}, sums once", times(step.micro_batches))};
  return {"replicate", step.mesh.replicate, "gradients of shards", "once"};
}

AxisTraffic shards(const Step& step) {
  const bool whole = step.settings.strategy == plan::Strategy::zero1;
  // What a list has at hand from a forward it does not gather again for the backward behind it.
  const std::string weights =
      step.gathers_each_use() ? fmt::format("up to {} (forward and backward)", times(2 * step.micro_batches)) : "once";
  return {"shard", step.mesh.shard, whole ? "weights, whole gradients" : "weights, gradients of shards",
          fmt::format("weights {}, gradients {}", weights, times(step.reductions()))};
}

// The passes through each block that communicate with the other ranks of cp or tp.
std::string passes(const Step& step) {
  const char* again = step.settings.recompute.mode == schedule::Recompute::none ? "" : ", again where recomputed";
  return fmt::format("forward and backward of {}{}", micro_batches_text(step.micro_batches), again);
}

AxisTraffic sequence_parts(const Step& step) {
  const bool ring = step.settings.mesh.context == model::Context::ring;
  const std::string attention = ring ? "keys and values" : "queries, keys, values and attended tokens by heads";
  const bool shared = step.settings.strategy != plan::Strategy::no_shard;
  return {"cp", step.mesh.cp, attention + (shared ? "; weights, gradients over shard x cp" : "; gradients"),
          ring ? fmt::format("{} a block, {}", base::plural(step.mesh.cp - 1, "hop"), passes(step))
               : fmt::format("there and back a block, {}", passes(step))};
}

AxisTraffic matrix_parts(const Step& step) {
  return {"tp", step.mesh.tp,
          step.settings.mesh.sequence_parallel ? "tokens gathered, partial sums scattered inside blocks"
                                               : "partial sums inside blocks",
          fmt::format("twice a block, {}", passes(step))};
}

}  // namespace

std::vector<AxisTraffic> mesh_traffic(const Settings& settings, int64_t world_size) {
  const Step step{settings, mesh_shape(settings, world_size), accumulation(settings, world_size)};
  std::vector<AxisTraffic> rows;
  for (const AxisTraffic& row :
       {pipeline(step), copies(step), shards(step), sequence_parts(step), matrix_parts(step)}) {
    if (row.size > 1) rows.push_back(row);
  }
  return rows;
}

}  // namespace trireme
