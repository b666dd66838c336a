// What a step took on this rank's own thread, by cause and by kind of action.
#pragma once

#include <map>

#include "trireme/base/meter.h"
#include "trireme/schedule/schedule.h"

namespace trireme::observe {

struct StepTime {
  double seconds = 0;
  base::ActivitySeconds causes{};  ///< they add up to `seconds`; on a GPU only where every action waits for it
  double hidden = 0;  ///< seconds that communicators' own threads worked while this thread did not wait for them
  std::map<schedule::ActionKind, double> actions;  ///< in all actions of a kind, with waiting for their end
};

}  // namespace trireme::observe
