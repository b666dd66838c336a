// The built-in pipeline schedules, one file each. Fk, Bk, Ik, Wk: forward, backward, its input half, its weight half
// of micro-batch k.
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
