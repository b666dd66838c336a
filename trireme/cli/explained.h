// The plan that `trireme explain` talks about: nothing is allocated, no rank is started.
#pragma once

#include <memory>

#include "trireme/config/settings.h"
#include "trireme/plan/step_plan.h"

namespace trireme::cli {

struct Explained {
  std::unique_ptr<model::Model> model;  ///< the plan refers to it
  plan::StepPlan plan;
};

/// Errors    UsageError: settings that cannot work, a rank that the mesh does not have
Explained plan_of(const config::Settings& settings, int rank);

}  // namespace trireme::cli
