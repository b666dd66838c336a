// What a step takes: each action's operations, messages and bytes, turned into seconds by a machine's figures. Whatever
// prints a predicted time calls this: `explain schedule --hardware`, `trireme plan`, --predict.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/meter.h"
#include "trireme/comm/collective.h"
#include "trireme/costs/hardware.h"
#include "trireme/costs/recorded_work.h"
#include "trireme/plan/step_plan.h"
#include "trireme/schedule/queue_model.h"

namespace trireme::costs {

/// How ranks lie on machines.
struct Machines {
  Hardware hardware;
  int64_t ranks = 8;  ///< of a machine
  int64_t threads = 1;  ///< of a rank on processors
  int64_t first_rank_bytes = 0;  ///< that rank 0 takes beside its plan: the weights of sample replies
};

/// Seconds of one operation.
///
/// Source    measured hardware: the rates of the nearest measured shapes, weighted by distance in the logarithm of m, n
///           and k. Others: the larger of operations / (peak x share) and bytes / (rate x share), and the launch; a
///           product's share falls by x / (x + half) for each of m, n and k
double operation_seconds(const Machines& machines, const ops::Operation& operation);

/// Seconds of a collective or message of `bytes` among `ranks` (global), where links move the bytes.
///
/// Source    rings: (N - 1) / N of the bytes pass every link for an all-gather or a reduce-scatter, twice as many for
/// an
///           all-reduce; across machines the devices of a machine share its connections (alpha-beta model, NCCL's
///           PERFORMANCE.md)
double collective_seconds(const Machines& machines, comm::Operation operation, double bytes,
                          const std::vector<int>& ranks);

/// GB/s at which such a ring passes bytes, without what large collectives reach of it (Link::share); `ranks` are not
/// empty.
double ring_rate(const Machines& machines, const std::vector<int>& ranks);

/// Bytes that a rank on processors reads and writes in shared memory for a communication of `ranks` ranks: with
/// gradients, the slots of its part and the sums that it writes.
double moved_bytes(const plan::StepPlan& plan, const schedule::Action& action);
/// Of all communications of a rank's step, those inside units too.
double moved_bytes(const plan::StepPlan& plan);

using CauseSeconds = std::array<double, base::kNumActivities>;

/// What base::Activity an operation's time counts as.
base::Activity activity_of(const ops::Operation& operation);

struct Prediction {
  double step = 0;  ///< seconds
  CauseSeconds causes{};  ///< of the first rank's own time, by base::Activity; `other` is idle time
  double model_flops =
      0;  ///< of all ranks' lists of micro-batches, without recomputation; attention's scores count once
  double executed_flops = 0;  ///< with recomputation
  std::vector<schedule::Schedule> lists;  ///< of each pipeline rank
  std::vector<schedule::RankProgram> programs;  ///< they refer to `lists`
  schedule::Costs costs;
  schedule::Simulation simulation;

  Prediction() = default;
  Prediction(const Prediction&) = delete;
  Prediction(Prediction&&) = default;
};

/// Refuses hardware whose figures say nothing of what the step needs: links, host memory, a disk. No step is recorded.
/// Errors    UsageError naming the hardware and the key
void check_figures(const plan::StepRequest& request, const Machines& machines);

/// Predicts a training step of all ranks.
///
/// Cost      recording the units, some milliseconds; then O(actions x ranks)
/// Errors    as check_figures()
Prediction predict(const model::Model& model, const plan::StepPlan& plan, const Machines& machines);

}  // namespace trireme::costs
