// What the settings leave open about offloading, decided: offload.fit says how much memory there is, not what leaves,
// and offload.prefetch auto not how early copies begin. The launcher, every rank and `trireme explain` decide by the
// same figures: the settings, the model, and the file that `bench calibrate` wrote on the one machine of all ranks.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/model/config.h"
#include "trireme/plan/offload_choice.h"
#include "trireme/settings/settings.h"

namespace trireme::train {

struct ChosenOffload {
  schedule::OffloadSettings offload;  ///< with `prefetch`, and without `fit`
  std::vector<plan::OffloadRung> rungs;  ///< what offload.fit chose from; the last one is chosen, and may not fit
  std::string distance;  ///< "copies begin 3 computations ahead", if that was chosen
  std::vector<std::string> remarks;  ///< sentences about what does not do what the settings ask for
};

/// The same on all ranks. On machines that were not measured, and on several machines, whose steps are not predicted,
/// `auto` is 1. Kept for the next call with the same settings and threads.
///
/// Cost      for offload.fit as plan::offload_rungs(); for offload.prefetch auto as costs::steps_by_distance(), and
///           with offload.fit a UnlikeRanks::measure() for each distance that is looked at
/// Errors    UsageError: the settings name kinds of values of which there are none, and no others; offload.host is
///           less than has to leave GPUs
ChosenOffload choose_offload(const Settings& settings, const model::ModelConfig& model, int num_ranks);

/// Every rank of `world` must call: refuses a run whose ranks have chosen different distances, because they read
/// different files of `bench calibrate`. Such ranks would plan different lists.
/// Errors    UsageError, the same on every rank
void require_same_distance(comm::Communicator& world, int64_t distance);

}  // namespace trireme::train
