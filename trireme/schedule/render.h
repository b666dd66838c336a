// Renders a placed list for people: `trireme explain schedule`.
#pragma once

#include <string>

#include "trireme/schedule/placement.h"
#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

/// One line an action: number, queue, action, what it reads and writes, MiB alive.
std::string render_text(const Schedule& schedule);

}  // namespace trireme::schedule
