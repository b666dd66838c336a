// The mesh with every axis decided: what `auto` axes become under a strategy on a number of ranks.
#pragma once

#include <cstdint>

#include "trireme/config/settings.h"

namespace trireme::config {

/// Ranks along each axis, outer to inner; their product is the number of ranks.
struct MeshShape {
  int64_t pp = 1, replicate = 1, shard = 1, cp = 1, tp = 1;

  int64_t product() const { return pp * replicate * shard * cp * tp; }
  /// Ranks that read different data: those of pp, cp and tp work on the same sequences together.
  int64_t data_parallel_ranks() const { return replicate * shard; }
  bool operator==(const MeshShape&) const = default;
};

/// True for the strategies that shard inside each of several copies.
bool is_hybrid(Strategy strategy);

/// Axes left to choose are 1, except those that the strategy spreads over: replicate for no_shard, shard for the
/// others; for hybrid strategies on several machines shard is one machine's part and replicate the rest, and with
/// one of the two given the other is the rest. Where the ranks do not divide, the product differs from
/// `world_size`: validate() says so.
MeshShape mesh_shape(const Settings& settings, int64_t world_size);

/// Pipeline stages on each rank: pipeline.chunks, or the schedule's own number; 1 without a pipeline.
int64_t stages_per_rank(const Settings& settings, const MeshShape& mesh);

}  // namespace trireme::config
