#include "trireme/config/mesh_shape.h"

#include <algorithm>

namespace trireme::config {

bool is_hybrid(Strategy strategy) {
  return strategy == Strategy::hybrid_shard || strategy == Strategy::hybrid_shard_zero2;
}

MeshShape mesh_shape(const Settings& settings, int64_t world_size) {
  const MeshSettings& mesh = settings.mesh;
  MeshShape shape{mesh.pp.value_or(1), mesh.replicate.value_or(1), mesh.shard.value_or(1), mesh.cp.value_or(1),
                  mesh.tp.value_or(1)};
  const auto rest = [&] { return std::max<int64_t>(world_size / std::max<int64_t>(shape.product(), 1), 1); };
  if (is_hybrid(settings.strategy) && !mesh.shard && !mesh.replicate && settings.num_nodes > 1) {
    shape.shard = std::max<int64_t>(world_size / settings.num_nodes / (shape.cp * shape.tp), 1);
    shape.replicate = rest();
    return shape;
  }
  // The last resort for a strategy whose own axis is given is the other data-parallel axis.
  const bool no_shard = settings.strategy == Strategy::no_shard;
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
  const std::string& name = settings.pipeline.schedule;
  return name == "interleaved_1f1b" || name == "zb_v" || name == "breadth_first" ? 2 : 1;
}

}  // namespace trireme::config
