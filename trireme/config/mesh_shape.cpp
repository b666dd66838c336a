#include "trireme/config/mesh_shape.h"

#include <algorithm>

namespace trireme::config {

MeshShape mesh_shape(const Settings& settings, int64_t world_size) {
  const MeshSettings& mesh = settings.mesh;
  MeshShape shape{mesh.pp.value_or(1), mesh.replicate.value_or(1), mesh.shard.value_or(1), mesh.cp.value_or(1),
                  mesh.tp.value_or(1)};
  // The last resort for a strategy whose own axis is given is the other data-parallel axis.
  const bool spread_replicate =
      settings.strategy == Strategy::no_shard ? !mesh.replicate : mesh.shard && !mesh.replicate;
  const bool spread_shard = settings.strategy != Strategy::no_shard && !mesh.shard;
  const int64_t others = std::max<int64_t>(shape.product(), 1);
  if (spread_shard) shape.shard = std::max<int64_t>(world_size / others, 1);
  if (spread_replicate) shape.replicate = std::max<int64_t>(world_size / others, 1);
  return shape;
}

}  // namespace trireme::config
