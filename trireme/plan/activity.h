// What a rank's time in an action counts as, in a run and in its prediction: the same rows stand beside each other.
#pragma once

#include "trireme/base/meter.h"
#include "trireme/plan/step_plan.h"
#include "trireme/schedule/action_kinds.h"

namespace trireme::plan {

/// That of the action's kind; but a rank that reduces gradients with nobody adds up its micro-batches, element by
/// element, and communicates nothing.
inline base::Activity activity_of(const StepPlan& plan, const schedule::Action& a) {
  const bool reduces =
      a.kind == schedule::ActionKind::reduce_gradient || a.kind == schedule::ActionKind::all_reduce_gradient;
  return reduces && plan.groups.reduce.size() == 1 ? base::Activity::elementwise : schedule::traits_of(a.kind).activity;
}

}  // namespace trireme::plan
