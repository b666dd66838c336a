// What a measured window of training says: which cause takes the most time that another setting, or another machine,
// would win back. Pure functions over figures of all ranks; train/profile.cpp collects them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/meter.h"

namespace trireme::observe {

/// One rank's figures of a window, seconds unless it says otherwise. All are doubles, so that ranks can send them as
/// one tensor.
struct RankWindow {
  double seconds = 0;  ///< wall time of the window
  double in_steps = 0;  ///< of it, between the beginning and the end of a step
  base::ActivitySeconds causes{};  ///< inside steps
  double hidden = 0;  ///< communicators' own threads, beside computation
  double recompute = 0;  ///< in actions that compute again
  double forward = 0, backward = 0;  ///< in actions of these passes; backward with what it computes again
  double answers = 0, evaluation = 0, saves = 0;  ///< between steps
  double lacking = 0;  ///< this thread was to compute, and had no core
  double throttled = 0, disk = 0, stolen = 0;  ///< as HostUsage; stolen: of a core
  double idle = 0;  ///< of the cores that its threads may use: their sum
  double major_faults = 0, swapped_bytes = 0;  ///< counts
  double threads = 1;  ///< that compute
  double rank = 0, stage = 0;  ///< global rank; pipeline stage
  double core_share = 1;  ///< of the time, that each of its threads gets a core; less if there are too few cores
  double resident_bytes = 0;

  double of(base::Activity activity) const { return causes[static_cast<size_t>(activity)]; }
  double compute() const {
    return of(base::Activity::products) + of(base::Activity::attention) + of(base::Activity::elementwise);
  }
};

/// What is the same for all ranks.
struct RunFacts {
  int64_t steps = 1;  ///< of the window
  int64_t first_step = 1;
  int64_t tokens_per_step = 0, samples_per_step = 0;  ///< 0: unknown
  int64_t micro_batches = 1;  ///< of a rank and step
  int64_t micro_batch_tokens = 0;  ///< 0: unknown
  int64_t pipeline_ranks = 1;
  double sent_each_micro_batch = 0;  ///< share of the bytes of weights and gradients; the rest is sent once a step
  double flops_per_step = 0, product_flops_per_step = 0;  ///< of all ranks
  double peak_flops = 0;  ///< of all ranks
  bool pinned = true;
  bool saves_beside = false;  ///< save.mode async
  bool on_gpu = false;
  int64_t data_workers = 0;
  int64_t save_interval = 0, evaluation_interval = 0;  ///< 0: none
  /// Bytes that a rank needs more without recomputation, and that its machine has left for each rank; negative: nothing
  /// is recomputed.
  int64_t bytes_without_recompute = -1, bytes_left = 0;
  int64_t planned_bytes = 0;  ///< of a rank
  double price = 0;  ///< of a rank and hour; 0: unknown
};

struct Finding {
  std::string cause;  ///< "data", "slow rank": a key for programs
  double seconds = 0;  ///< that a step would take less without it, about
  std::string what;  ///< "data is waited for"
  std::string advice;  ///< "set --data.num_workers 2"
};

/// Of the ranks of one stage, which do the same work: how much longer the slowest computes than the median. Without two
/// such ranks `rank` is null.
struct SlowRank {
  const RankWindow* rank = nullptr;  ///< one of `ranks`
  double seconds = 0, median = 0;
};
SlowRank slow_rank(std::span<const RankWindow> ranks);

/// Findings of at least `least` of a step, the largest first.
///
/// Source    each rule is a difference of measured times; they are listed in docs/profiling.md
std::vector<Finding> diagnose(const RunFacts& run, std::span<const RankWindow> ranks, double least = 0.03);

/// The report that a run prints. `units` and `operations` are texts of the first rank, and may be empty.
std::string profile_text(const RunFacts& run, std::span<const RankWindow> ranks, const std::string& units,
                         const std::string& operations);

/// The same as JSON: findings, phases, ranks, rates, money, and the efficiency metrics that textbooks name
/// (utilization, memory_utilization, time_in_forward, ...: shares of 1, means over ranks).
std::string profile_json(const RunFacts& run, std::span<const RankWindow> ranks);

}  // namespace trireme::observe
