// From a declaration to the list of a step: the pipeline's cells, then the passes of draft.h one after the other.
#pragma once

#include "trireme/schedule/schedule.h"
#include "trireme/schedule/step_declaration.h"

namespace trireme::schedule {

/// The list of one optimizer step. Persistent values come first and in the same order as in evaluation_schedule.
/// `timing` holds the cells of all pipeline ranks (time_pipeline; of one rank: one_rank_timing).
Schedule training_schedule(const StepDeclaration& step, const PipelineTiming& timing);

/// Forward passes of the micro-batches, loss sums gathered at the end.
Schedule evaluation_schedule(const StepDeclaration& step, const PipelineTiming& timing);

/// Without a pipeline: forward and backward of one micro-batch after the other.
PipelineTiming one_rank_timing(int micro_batches, bool train);

}  // namespace trireme::schedule
