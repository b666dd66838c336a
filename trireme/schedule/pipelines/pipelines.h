// The built-in pipeline schedules, one file each. Their comments write Fk, Bk, Ik and Wk for micro-batch k's forward,
// backward, input half and weight half of backward.
#pragma once

#include "trireme/schedule/pipeline.h"

namespace trireme::schedule::pipelines {

PipelineSchedule gpipe();
PipelineSchedule one_f_one_b();
PipelineSchedule interleaved_1f1b();
PipelineSchedule breadth_first();
PipelineSchedule zb_h1();
PipelineSchedule zb_v();

}  // namespace trireme::schedule::pipelines
