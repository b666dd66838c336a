// A run's plan as text, to compare: the planned memory and the list of actions of one rank.
#pragma once

#include <string>

#include "trireme/plan/step_plan.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/validate.h"
#include "trireme/train/setup.h"

namespace trireme::dialects {

inline std::string plan_text(const Settings& settings, int rank = 0) {
  const int ranks = static_cast<int>(world_size(settings));
  validate(settings, ranks);
  const model::ModelConfig config = model::config_of(settings.model);
  const plan::StepRequest request = train::step_request(settings, config, rank, ranks);
  const model::Model model = train::build_run_model(settings, config, request);
  const plan::StepPlan plan = plan::make_step_plan(model, request);
  return plan::render_memory(plan::memory_report(plan)) + schedule::render_text(plan.train());
}

}  // namespace trireme::dialects
