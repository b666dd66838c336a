// The rules of validate() that are about parallelism: strategy, mesh, pipeline, sequence.
#pragma once

#include "trireme/config/mesh_shape.h"
#include "trireme/config/problems.h"
#include "trireme/config/settings.h"

namespace trireme::config {

/// The mesh holds all ranks, in copies and shards that the strategy has.
void check_mesh(const Settings& settings, const MeshShape& mesh, int64_t world_size, Problems& problems);

/// Axes that divide a model or a sequence find enough to divide. For a mesh that check_mesh accepts.
void check_parallel(const Settings& settings, const MeshShape& mesh, Problems& problems);

/// "60 or 72": the multiples of `unit` on both sides of `number`; the upper one alone where the lower one is 0.
std::string near_multiples(int64_t number, int64_t unit);

}  // namespace trireme::config
