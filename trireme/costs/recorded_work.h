// What the units of a plan do in each of their passes: operations with their shapes, and calls on their own
// communicators. It is not declared a second time: each unit runs once, in memory that does not exist
// (mirror_memory.h), and its operations say what they are instead of running (ops/announce.h). So adapters, blocks of
// 4 bits, recomputation and every axis count as they are executed.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/ops/announce.h"
#include "trireme/plan/step_plan.h"

namespace trireme::costs {

struct Work {
  std::vector<ops::Operation> operations;
  std::vector<model::TrafficRow> traffic;

  double flops() const;
  /// Of these, attention's scores, which its backward computes again instead of keeping them.
  double recomputed_flops() const;
  double bytes() const;
};

/// The most bytes that a unit's pass names at once, the weights aside: address space that recording it takes.
int64_t recorded_bytes(const plan::StepPlan& plan);
/// A system maps some 65,000 pieces of address space (mirror_memory.h), so no more than about this is recorded.
constexpr int64_t kMostRecordedBytes = int64_t{1} << 39;

/// Errors    what the units' passes throw; UsageError: more than twice kMostRecordedBytes. A unit of LibTorch modules
/// counts as one operation, "module"
class WorkRecorder {
 public:
  /// `plan` and its model outlive the recorder.
  explicit WorkRecorder(const plan::StepPlan& plan) : plan_(plan) {}

  /// Of the computation `action` in a list, on any rank of the plan's coordinates inside units.
  ///
  /// Cost      some milliseconds for the first unit of a kind; units that are alike share their work
  const Work& of(schedule::List list, const schedule::Schedule& schedule, const schedule::Action& action);

 private:
  Work record(schedule::List list, const schedule::Schedule& schedule, const schedule::Action& action) const;

  const plan::StepPlan& plan_;
  std::map<std::string, Work> known_;
};

}  // namespace trireme::costs
