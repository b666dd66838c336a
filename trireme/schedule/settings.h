// Settings for the order of a step's actions: pipeline, recomputation (activation checkpointing), prefetch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/config/declaration.h"

namespace trireme::schedule {

/// Which saved values are computed again before backward, instead of kept in memory.
enum class Recompute {
  none,
  full,       ///< all except each block's input
  selective,  ///< those in RecomputeSettings::values
};
std::span<const config::Choice<Recompute>> choices_of(Recompute);

/// When backward passes start to gather the next unit's weights (FSDP's BackwardPrefetch).
enum class PrefetchBackward {
  pre,   ///< before a unit's gradients are computed
  post,  ///< after
  none,  ///< when the weights are used
};
std::span<const config::Choice<PrefetchBackward>> choices_of(PrefetchBackward);

/// `schedule` is the name of a row of pipeline_schedules() (pipeline.h).
struct PipelineSettings {
  std::string schedule = "1f1b";
  int64_t chunks = 0;                         ///< stages a rank; 0: the schedule's own number
  std::optional<std::vector<int64_t>> split = {};  ///< units of each stage; empty: balanced by cost
  bool operator==(const PipelineSettings&) const = default;
};
config::Section section(PipelineSettings& settings);

struct RecomputeSettings {
  Recompute mode = Recompute::none;
  std::vector<std::string> values = {"hidden"};  ///< for Recompute::selective: names of saved values
  int64_t every = 1;                             ///< every n-th of the units that save anything
  bool operator==(const RecomputeSettings&) const = default;
};
config::Section section(RecomputeSettings& settings);

struct ScheduleSettings {
  int64_t prefetch = 1;
  bool prefetch_forward = true;
  PrefetchBackward prefetch_backward = PrefetchBackward::pre;
  std::optional<int64_t> limit_unsharded;  ///< elements
  int64_t reduce_lag = 1;
  bool operator==(const ScheduleSettings&) const = default;
};
config::Section section(ScheduleSettings& settings);

/// Where values rest while no action uses them.
enum class Tier { none, cpu, disk };
std::span<const config::Choice<Tier>> choices_of(Tier);

/// What leaves the rank's own memory. `parameters` are the weights that are gathered, or read if they are whole;
/// `master` are the optimizer's, if those are two tensors.
struct OffloadSettings {
  Tier optimizer = Tier::none, master = Tier::none, parameters = Tier::none, gradients = Tier::none,
       activations = Tier::none;
  double ratio = 1;  ///< of each kind's bytes; the rest stays
  std::optional<int64_t> fit = {};  ///< bytes of own memory: what leaves is chosen
  int64_t host = 0;  ///< bytes of host memory for that; the rest goes to the disk
  std::optional<int64_t> prefetch = 1;  ///< computations or optimizer steps between the start of a Fetch and its reader
  int64_t buffers = 8;  ///< blocks of a disk under way in each direction
  std::optional<std::string> path = {};  ///< folder of the file on disk; empty: the run's
  /// `prefetch`, or 1 where it is still to be chosen (train/chosen_offload.h).
  int64_t distance() const { return prefetch.value_or(1); }
  bool any() const { return uses(Tier::cpu) || uses(Tier::disk); }
  bool uses(Tier tier) const {
    return optimizer == tier || master == tier || parameters == tier || gradients == tier || activations == tier;
  }
  bool operator==(const OffloadSettings&) const = default;
};
config::Section section(OffloadSettings& settings);

/// A folder that is not there, or lies in memory (tmpfs), where nothing would be saved.
std::optional<config::Refusal> check_offload_folder(const std::string& folder);

}  // namespace trireme::schedule
