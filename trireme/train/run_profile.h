// The profile of a run with --profile (observe/profile.h), with what its settings say.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/observe/profile.h"
#include "trireme/train/session.h"

namespace trireme::train {

/// Every rank must call.
/// @param peak_flops           of all ranks (train/pace.h)
/// @param evaluation_interval  steps; 0: none
std::shared_ptr<observe::Profile> profile_of_run(Session& session, double peak_flops, int64_t evaluation_interval);

constexpr int64_t kDrawnStep = 3;  ///< counted from a start; the steps before it warm up

/// What a start with so many steps left is too short for: a sentence each. 0: no step, or no end is known.
std::vector<std::string> unmeasured(const Settings& settings, int64_t steps_left);

/// Draws the last step to settings.profile.schedule (observe::write_timeline). Every rank must call. Returns the line
/// to say.
std::string draw_step(Session& session, int64_t step);

}  // namespace trireme::train
