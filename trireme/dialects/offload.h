// What other systems move to host memory or to a disk, as offload.* here.
#pragma once

#include "trireme/dialects/reading.h"

namespace trireme::dialects {

/// Reads the keys of all systems' tables that move something, as far as the file has them. For the end of `finish`:
/// what can leave depends on the strategy.
void finish_offload(Reading& reading);

// What their rows say. Systems move gradients with the optimizer, and weights only if ranks divide them.
inline constexpr std::string_view kOffloadOptimizer =
    "offload.optimizer and offload.master: none, cpu, or disk for nvme; with stages 2 and 3 offload.gradients too";
inline constexpr std::string_view kOffloadParameters = "offload.parameters: none, cpu, or disk for nvme";
inline constexpr std::string_view kOffloadAll =
    "offload.parameters, offload.master, offload.gradients and offload.optimizer: cpu if true";
inline constexpr std::string_view kOffloadActivations = "offload.activations: cpu if true";
inline constexpr std::string_view kOffloadRatio = "offload.ratio, if something leaves";
inline constexpr std::string_view kOffloadBuffers = "offload.buffers, if something goes to a disk";

}  // namespace trireme::dialects
