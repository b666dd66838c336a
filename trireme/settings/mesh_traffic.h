// Says in words what the ranks along each axis of the mesh send each other in a step. Bytes and times
// are in the plan.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/settings/settings.h"

namespace trireme {

struct AxisTraffic {
  std::string_view axis;    ///< "pp", "replicate", "shard", "cp", "tp"
  int64_t size;             ///< ranks
  std::string travels;      ///< "weights, gradients of shards"
  std::string per_step;     ///< "weights up to 16 times (forward and backward), gradients 8 times"
};

/// A row for each axis of more than one rank, outer to inner, for settings that validate() accepts.
std::vector<AxisTraffic> mesh_traffic(const Settings& settings, int64_t world_size);

}  // namespace trireme
