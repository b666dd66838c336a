// The operations of a step by shape: how often, how long, at which rate.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trireme/costs/operation_timer.h"

namespace trireme::costs {

/// A line for each of the `shown` longest, one for all others, and the sum beside `step` seconds. They were timed over
/// `steps`.
std::string operations_text(const std::vector<TimedOperation>& operations, int64_t steps, double step,
                            size_t shown = 24);

/// All, for bench.json: name, dtype, m, n, k, seconds, calls_a_step.
nlohmann::ordered_json operations_json(const std::vector<TimedOperation>& operations, int64_t steps);

}  // namespace trireme::costs
