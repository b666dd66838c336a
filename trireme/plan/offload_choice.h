// What has to leave a rank's memory so that a step fits: the least that does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/plan/step_plan.h"

namespace trireme::plan {

/// One way of offloading, and the bytes of a rank.
struct OffloadRung {
  schedule::OffloadSettings offload;
  int64_t own = 0, host = 0, disk = 0;
};

/// Ways of offloading, each with one kind of value more than the one before: moments, masters, gradients, activations,
/// parameters. That is the order of what a step moves for a byte that is saved. They end with the first that needs at
/// most `own` bytes; if none does, they are all there. What does not fit in `host` bytes goes to the disk, moments
/// first.
///
/// @param request  its `offload` says how copies are made; its kinds do not matter
/// Cost      a plan for each way and pipeline stage, or two
/// Errors    as make_step_plan()
std::vector<OffloadRung> offload_rungs(const model::Model& model, const StepRequest& request, int64_t own,
                                       int64_t host);

/// "moments and masters on disk, gradients in host memory", or "nothing".
std::string describe(const schedule::OffloadSettings& offload);

/// A table of the ways, for people.
std::string render_rungs(const std::vector<OffloadRung>& rungs, int64_t own);

}  // namespace trireme::plan
