// The second part of a plan: its lists of actions, their places in the arena, and the checks of both.
#pragma once

#include <vector>

#include "trireme/plan/step_plan.h"
#include "trireme/schedule/pipeline.h"
#include "trireme/schedule/step_declaration.h"

namespace trireme::plan {

/// What lists are made of. Ranks of one pipeline share it.
struct ListParts {
  schedule::PerList<std::vector<schedule::UnitDeclaration>> units;
  schedule::PerList<schedule::PipelineTiming> timing;
};

ListParts list_parts(const model::Model& model, const StepPlan& plan);

/// The lists of plan.request's rank, not placed.
void add_lists(StepPlan& plan, const ListParts& parts);
/// One list of all pipeline ranks, not placed.
std::vector<schedule::Schedule> lists_of_stages(const model::Model& model, const StepPlan& plan, schedule::List list,
                                                const ListParts& parts);

void place_lists(StepPlan& plan);
/// Of lists that are placed: room for what a caller keeps between them (StepRequest::lent_bytes).
void lend_memory(StepPlan& plan);

/// Errors    InternalError if one of this rank's lists breaks a rule by itself
void check_lists(const StepPlan& plan);
/// `lists` is the list `name` of each pipeline rank.
/// Errors    InternalError if ranks would make calls that do not meet
void check_meetings(const StepPlan& plan, const char* name, const std::vector<schedule::Schedule>& lists);

}  // namespace trireme::plan
