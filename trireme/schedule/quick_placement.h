// A placement that takes a fraction of place()'s time and is a few percent larger: enough to see that a list does not
// need the most memory of several.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/schedule/placement.h"

namespace trireme::schedule {

/// As place(), but by bytes alone, without a search for a better order: no region is smaller than place() makes it.
Arena place_quickly(std::span<Schedule> schedules, int64_t guard_bytes = 0);

}  // namespace trireme::schedule
