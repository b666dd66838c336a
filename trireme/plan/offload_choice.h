// What leaves the ranks' memory so that a step fits: one kind of value after the other, until it does.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "trireme/plan/step_plan.h"

namespace trireme::plan {

/// One way of offloading, and the most bytes that a rank needs with it.
struct OffloadRung {
  schedule::OffloadSettings offload;
  int64_t own = 0, host = 0, disk = 0;
};

/// Makes the model on the rank of a request.
using BuildModel = std::function<model::Model(const StepRequest&)>;

/// The ranks of a mesh whose plans can differ: of those that own as much of each group in one pipeline stage, the
/// first.
class UnlikeRanks {
 public:
  /// Of the mesh of `request`, for any of its ranks.
  /// Cost      a model for each way to divide a unit; no plan
  /// Errors    as make_step_plan()
  UnlikeRanks(const BuildModel& build, const StepRequest& request);

  /// What the fullest of all ranks needs with `offload`.
  ///
  /// Cost      a plan for each rank here: a few for each pipeline stage
  /// Errors    as make_step_plan()
  OffloadRung measure(const schedule::OffloadSettings& offload) const;

  /// Of the first rank.
  const StepRequest& request() const { return ranks_.front().request; }
  int64_t size() const { return std::ssize(ranks_); }

 private:
  struct Rank {
    const model::Model* model;
    StepRequest request;
  };
  std::vector<std::unique_ptr<model::Model>> models_;
  std::vector<Rank> ranks_;
};

/// Ways of offloading, each with one kind of value more than the one before: moments, masters, gradients, activations,
/// parameters. That is the order of what a step moves for a byte that is saved. They end with the first with which
/// every rank needs at most `own` bytes; if none does, they are all there. What does not fit in `host` bytes of a rank
/// goes to the disk, moments first.
///
/// @param ranks  the `offload` of their request says how copies are made; its kinds do not matter
/// Cost      for each way what UnlikeRanks::measure() costs, or twice that
/// Errors    as make_step_plan()
std::vector<OffloadRung> offload_rungs(const UnlikeRanks& ranks, int64_t own, int64_t host);

/// Sentences about the kinds of values that `plan` would offload and of which no stage has any: "offload.master has
/// nothing to move: ...". `plan` may be without lists (stage_plans.h).
struct IdleKinds {
  std::vector<std::string> sentences;
  bool all = false;  ///< nothing leaves at all
};
IdleKinds idle_kinds(const model::Model& model, const StepPlan& plan);

/// "moments and masters on disk, gradients in host memory", or "nothing".
std::string describe(const schedule::OffloadSettings& offload);

/// A table of the ways, for people.
std::string render_rungs(const std::vector<OffloadRung>& rungs, int64_t own);

}  // namespace trireme::plan
