#include "trireme/schedule/settings.h"

#include "trireme/schedule/pipeline.h"

namespace trireme::schedule {

using config::Resumed;
using config::Rules;

std::span<const config::Choice<Recompute>> choices_of(Recompute) {
  static const std::vector<config::Choice<Recompute>> kTable = {{Recompute::none, "none", {"false"}},
                                                                {Recompute::full, "full", {"true"}},
                                                                {Recompute::selective, "selective", {}}};
  return kTable;
}

std::span<const config::Choice<PrefetchBackward>> choices_of(PrefetchBackward) {
  static const std::vector<config::Choice<PrefetchBackward>> kTable = {
      {PrefetchBackward::pre, "pre", {"backward_pre"}},
      {PrefetchBackward::post, "post", {"backward_post"}},
      {PrefetchBackward::none, "none", {"false"}}};
  return kTable;
}

namespace {

std::vector<std::string> pipeline_schedule_names() {
  std::vector<std::string> names;
  for (const PipelineSchedule& schedule : pipeline_schedules()) names.emplace_back(schedule.name);
  return names;
}

}  // namespace

config::Section section(PipelineSettings& s) {
  return {
      .name = "pipeline",
      .title = "stages of the model, with mesh.pp above 1",
      .rows = {{"pipeline.schedule", &s.schedule, "pipeline schedule: the order of forward and backward passes",
                Rules{.classes = pipeline_schedule_names()}},
               {"pipeline.chunks", &s.chunks,
                "stages on each rank; 0 takes the schedule's own number, 2 for interleaved_1f1b, zb_v and "
                "breadth_first, else 1",
                Rules{.unit = "stages", .at_least = 0, .at_most = 64}},
               {"pipeline.split", &s.split, "units (embedding, blocks, head) of each stage, for instance [4, 4, 4, 3]",
                Rules{.unit = "units",
                      .at_least = 1,
                      .absent = "auto",
                      .when_absent = "balanced by cost",
                      .example = "[4, 4, 4, 3]"}}},
      .others = {{{"pipeline_parallel_schedule"}, "the order of passes is pipeline.schedule"},
                 {{"virtual_pipeline_model_parallel_size"}, "stages on each rank are pipeline.chunks"}}};
}

config::Section section(RecomputeSettings& s) {
  return {.name = "recompute",
          .title = "memory for time",
          .own_leaf = "mode",
          .resumed = Resumed::yes,
          .rows = {{"recompute", &s.mode,
                    "what is computed again in the backward pass instead of kept: nothing, all but each block's input "
                    "(full), or recompute.values (selective)"},
                   {"recompute.values", &s.values, "values that selective computes again",
                    Rules{.classes = {"qkv", "attended", "mid", "hidden"}}},
                   {"recompute.every", &s.every, "recompute in every n-th block; 1 is all of them",
                    Rules{.unit = "blocks", .at_least = 1}}},
          .others = {{{"gradient_checkpointing", "activation_checkpointing", "remat"},
                      "recomputing activations is recompute full"}}};
}

config::Section section(ScheduleSettings& s) {
  return {
      .name = "schedule",
      .title = "order of a step's actions",
      .rows =
          {{"schedule.prefetch", &s.prefetch, "units whose weights are gathered ahead of their use",
            Rules{.unit = "units", .at_least = 0, .at_most = 64}},
           {"schedule.prefetch_forward", &s.prefetch_forward, "gather ahead in forward passes too"},
           {"schedule.prefetch_backward", &s.prefetch_backward,
            "when backward passes start to gather the next unit's weights: before a unit's gradients are computed "
            "(pre), after that (post), or when the weights are used (none)"},
           {"schedule.limit_unsharded", &s.limit_unsharded,
            "most parameters that a rank holds gathered at once; gathers wait until they fit",
            Rules{.unit = "parameters", .at_least = 1, .absent = "null", .when_absent = "no limit", .example = "5e8"}},
           {"schedule.reduce_lag", &s.reduce_lag,
            "number of later computations (forward or backward of one unit each) that a gradient's reduction may "
            "overlap",
            Rules{.unit = "computations", .at_least = 0, .at_most = 64}}},
      .others = {{{"backward_prefetch"}, "gathering ahead in backward passes is schedule.prefetch_backward"},
                 {{"forward_prefetch"}, "gathering ahead in forward passes is schedule.prefetch_forward"},
                 {{"limit_all_gathers"}, "whole weights on a rank at once are schedule.limit_unsharded"}}};
}

}  // namespace trireme::schedule
