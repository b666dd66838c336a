// What `trireme explain` shows: who talks to whom, and when. Nothing is allocated and no rank is started.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/plan/stage_plans.h"
#include "trireme/plan/step_plan.h"
#include "trireme/settings/parse.h"

namespace trireme::cli {

/// `trireme explain mesh`: a table of who talks to whom.
/// Errors    UsageError: settings that cannot work
std::string mesh_text(const Settings& settings);

/// `trireme explain memory`: the planned peak of a rank by cause.
/// If nothing fits in offload.fit, what was tried is printed before that is refused.
/// Errors    as plan_of(); UsageError: what no GPU computes
std::string memory_text(const Settings& settings, int rank);

/// Errors    UsageError: there is no such rank
void require_rank(const Settings& settings, int64_t rank);

struct Explained {
  std::unique_ptr<model::Model> model;  ///< the plan refers to it
  plan::StepPlan plan;
};

/// Errors    UsageError: settings that cannot work, a rank that the mesh does not have
Explained plan_of(const Settings& settings, int rank);

struct ExplainedStages {
  std::unique_ptr<model::Model> model;  ///< the plans refer to it
  std::vector<plan::StepPlan> plans;  ///< of one rank of each pipeline stage, by stage
};

/// Errors    as plan_of()
ExplainedStages plans_of_stages(const Settings& settings, plan::PlacedStages placed);

/// How a schedule is shown.
enum class ScheduleFormat {
  text,  ///< picture for the terminal
  list,  ///< one rank's actions, one a line
  svg,  ///< picture
  trace,  ///< Chrome trace events, for Perfetto
};
std::span<const config::Choice<ScheduleFormat>> choices_of(ScheduleFormat);

struct ScheduleView {
  ScheduleFormat format = ScheduleFormat::text;
  std::optional<std::string> output;  ///< file; absent: standard output
  int64_t rank = 0;  ///< whose list
  double gflops_per_second = 100;  ///< what a rank computes; --rate
  double gigabytes_per_second = 10;  ///< what a message or collective moves; --bandwidth
  std::optional<std::string> hardware;  ///< by whose figures times are predicted, instead of these two
  int64_t width = 110;  ///< columns of text
  bool unicode = true;  ///< in text
};

/// The options of `trireme explain schedule` beside the settings; with `rank_alone` those of explain memory.
config::Section section(ScheduleView& view, bool rank_alone);

/// Writes what every rank does at which time of a step, to standard output or a file. The queue model
/// (schedule/queue_model.h) predicts the times, from nominal rates or a hardware file. Such hardware decides what
/// `trireme plan` lets it decide.
/// Errors    as plan_of(); UsageError: what no GPU computes, with accelerator cuda from the user
void explain_schedule(ParsedSettings& parsed, const ScheduleView& view);

}  // namespace trireme::cli
