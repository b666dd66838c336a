#include "trireme/schedule/settings.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/config/problems.h"
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

std::span<const config::Choice<Tier>> choices_of(Tier) {
  static const std::vector<config::Choice<Tier>> kTable = {
      {Tier::none, "none", {}}, {Tier::cpu, "cpu", {"host"}}, {Tier::disk, "disk", {"nvme"}}};
  return kTable;
}

std::optional<config::Refusal> check_offload_folder(const std::string& folder) {
  constexpr long kTmpfs = 0x01021994, kRamfs = 0x858458f6;
  struct statfs about = {};
  const auto refused = [&](int code) {
    return config::Refusal{fmt::format("offload.path {}: {}", folder, std::strerror(code)),
                           "set offload.path to a folder on a disk in which files can be made"};
  };
  if (statfs(folder.c_str(), &about) != 0) return refused(errno);
  struct stat entry = {};
  if (stat(folder.c_str(), &entry) == 0 && !S_ISDIR(entry.st_mode)) return refused(ENOTDIR);
  if (access(folder.c_str(), W_OK | X_OK) != 0) return refused(errno);
  if (about.f_type == kTmpfs || about.f_type == kRamfs)
    return config::Refusal{fmt::format("offload.path {} lies in memory, where offloading saves nothing", folder),
                           "set offload.path to a folder on a disk, or offload to cpu"};
  return std::nullopt;
}

config::Section section(OffloadSettings& s) {
  return {
      .name = "offload",
      .title = "what rests in host memory or on a disk while no action uses it",
      .rows = {{"offload.optimizer", &s.optimizer, "the optimizer's moments"},
               {"offload.master", &s.master, "the weights that the optimizer updates, if units compute with others"},
               {"offload.parameters", &s.parameters,
                "the weights that units read: this rank's shard, or all of them if they are not sharded"},
               {"offload.gradients", &s.gradients, "the sums of gradients that the optimizer reads"},
               {"offload.activations", &s.activations,
                "what forward passes keep for backward passes, from the forward pass of one unit to its backward pass"},
               {"offload.ratio", &s.ratio,
                "share of the bytes that leaves, by groups of parameters and by units; the rest stays",
                Rules{.above = 0, .at_most = 1}},
               {"offload.fit", &s.fit,
                "the rank's own memory that has to be enough: kinds leave in this order until every rank fits: "
                "moments, masters, gradients, activations, parameters",
                Rules{.at_least = 1,
                      .bytes = true,
                      .absent = "null",
                      .when_absent = "the settings above say what leaves",
                      .example = "24GiB"}},
               {"offload.host", &s.host,
                "host memory that offload.fit may use for a rank; what is more goes to the disk",
                Rules{.at_least = 0, .bytes = true}},
               {"offload.prefetch", &s.prefetch,
                "computations or optimizer steps between the start of a copy and its first use; more hides slower "
                "copies and takes more memory; auto is the least of 1, 2, 3, 4, 6, 8, 12, 16, 24 and 32 with which the "
                "predicted step (trireme bench calibrate) is within 1 % of the shortest",
                Rules{.unit = "actions",
                      .at_least = 0,
                      .at_most = 64,
                      .absent = "auto",
                      .when_absent = "chosen by what trireme bench calibrate measured on this machine"}},
               {"offload.buffers", &s.buffers,
                "blocks of 1 MiB that a disk reads at a time, and as many that it writes",
                Rules{.unit = "blocks", .at_least = 1, .at_most = 256}},
               {"offload.path", &s.path, "folder for what rests on a disk: one file a rank, which ends with the run",
                Rules{.absent = "null", .when_absent = "the run's folder", .example = "/scratch"}}},
      .others = {{{"cpu_offload", "offload_params"},
                  "what rests in host memory is chosen with offload.optimizer, offload.master, offload.parameters, "
                  "offload.gradients and offload.activations"},
                 {{"offload_optimizer"}, "moments leave with offload.optimizer, master weights with offload.master"},
                 {{"offload_param"}, "weights leave with offload.parameters"},
                 {{"nvme_path"}, "the folder of what rests on a disk is offload.path"},
                 {{"queue_depth"}, "the blocks that a disk moves at a time are offload.buffers"}},
      .check = [&s](config::Problems& problems) {
        if (s.fit && s.any())
          problems.add("offload.fit chooses what leaves, and other settings say it", {},
                       "leave out offload.fit, or the other kinds of offload.*");
        if (s.host > 0 && !s.fit)
          problems.add("offload.host is for what offload.fit chooses", {},
                       "set offload.fit, or leave offload.host out");
        if (s.fit) return;
        if (s.ratio != 1 && !s.any())
          problems.add("offload.ratio is the share of what leaves, and nothing leaves", {},
                       "set offload.optimizer cpu or disk, or another kind; or leave offload.ratio out");
        if (s.prefetch != 1 && !s.any())
          problems.add("offload.prefetch says when copies are made, and nothing leaves", {},
                       "set offload.optimizer cpu or disk, or another kind; or leave offload.prefetch out");
        if (s.buffers != OffloadSettings{}.buffers && !s.uses(Tier::disk))
          problems.add("offload.buffers is for what rests on a disk, and nothing does", {},
                       "set offload.optimizer disk, or another kind; or leave offload.buffers out");
        if (s.path && !s.uses(Tier::disk))
          problems.add("offload.path is the folder of what rests on a disk, and nothing does", {},
                       "set offload.optimizer disk, or another kind; or leave offload.path out");
      }};
}

}  // namespace trireme::schedule
