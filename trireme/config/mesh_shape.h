// The mesh with every axis decided: what `auto` axes become under a strategy on a number of ranks.
#pragma once

#include <cstdint>

#include "trireme/config/settings.h"

namespace trireme::config {

/// Ranks along each axis, outer to inner; their product is the number of ranks.
struct MeshShape {
  int64_t pp = 1, replicate = 1, shard = 1, cp = 1, tp = 1;

  int64_t product() const { return pp * replicate * shard * cp * tp; }
  int64_t data_parallel_ranks() const { return replicate * shard; }
  bool operator==(const MeshShape&) const = default;
};

/// Axes left to choose are 1, except the one that the strategy spreads over: replicate for no_shard, shard
/// for the others. Where the ranks do not divide, the product differs from `world_size`: validate() says so.
MeshShape mesh_shape(const Settings& settings, int64_t world_size);

}  // namespace trireme::config
