// What `trireme plan` says: whether a run fits, how long a step takes and why, how long and how dear the whole is; and
// the same by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/costs/step_costs.h"

namespace trireme::costs {

struct Budget {
  std::optional<double> tokens;  ///< of the whole training
  double price = 0;  ///< of a device and hour
  std::string currency;
  std::string price_is;  ///< ", an example of 2025"; empty: the user's own
};

/// Bytes a device has for a plan; 0: unknown.
double room(const Hardware& hardware);

/// The plans of one rank of each pipeline stage, by stage.
using StagePlans = std::vector<const plan::StepPlan*>;

/// Bytes of the device that needs the most; on processors, those of all ranks of a machine.
double needed(const StagePlans& stages, const Machines& machines);

/// Bytes that the fullest machine's ranks offload (offload.*), to its memory and its disk. On processors, needed()
/// counts those in memory.
struct Offloaded {
  double host = 0, disk = 0;
};
Offloaded offloaded(const StagePlans& stages, const Machines& machines);

/// Whether devices have what a plan needs, and machines have the memory for what devices offload. A file that does not
/// say how much memory a machine has sets no limit to that.
bool fits(const StagePlans& stages, const Machines& machines);

/// What most of a step goes to, in words: "arithmetic", "memory", "communication", "the pipeline's idle time".
std::string binding(const Prediction& prediction, const plan::StepPlan& plan);

/// The step's time, or nothing where a micro-batch is too large to be recorded (kMostRecordedBytes).
/// Errors    as predict()
std::optional<Prediction> predict_if_recorded(const plan::StepPlan& plan, const Machines& machines);

/// Memory by cause of the stage that needs the most, whether it fits, the step's time by cause, tokens a second, share
/// of the peak, days and money. `next_steps`: what to try where it does not fit; empty: nothing is said.
std::string render_plan(const StagePlans& stages, const std::optional<Prediction>& prediction, const Machines& machines,
                        const Budget& budget, int64_t tokens_per_step, const std::string& next_steps);

/// What a plan says beside its figures.
struct Remarks {
  std::vector<std::string> warnings;
  std::string refused;  ///< why a run is refused today; empty: it is not
};

/// The same figures as JSON. What is unknown is null: times without a prediction, `fits` without the hardware's memory.
std::string plan_json(const StagePlans& stages, const std::optional<Prediction>& prediction, const Machines& machines,
                      int64_t tokens_per_step, const Remarks& remarks);

/// The arithmetic that a person would do, with this plan's numbers beside it.
std::string render_arithmetic(const plan::StepPlan& plan, const Machines& machines, const Budget& budget,
                              int64_t tokens_per_step);

}  // namespace trireme::costs
