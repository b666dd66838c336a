// The reference that answers are compared with: their log-probabilities under it, computed on the run's own engine,
// whose weights are exchanged for the reference's meanwhile.
#pragma once

#include <vector>

#include "trireme/train/rollout.h"
#include "trireme/train/session.h"

namespace trireme::train {

/// Writes the log-probabilities of the tokens of all answers that count, under the engine's weights as they are now,
/// into `to` of each. Every rank must call.
/// Cost      a forward pass over them
void score_answers(Session& session, std::vector<RolloutGroup>& groups, std::vector<double> RolloutAnswer::* to);

class FrozenReference {
 public:
  explicit FrozenReference(Session& session) : s_(session) {}
  /// Loads the reference; the engine then holds its weights until others are loaded. Every rank must call.
  /// Errors    as load_reference()
  void load();

  /// Fills in RolloutAnswer::reference of all answers that count. Every rank must call.
  /// Cost      a forward pass over them
  void score(std::vector<RolloutGroup>& groups);

 private:
  Session& s_;
  std::vector<at::Tensor> weights_;  ///< this rank's slices of what is trained, by group
};

/// Puts a step's answers into micro-batches.
class AnswerRows {
 public:
  AnswerRows(const Session& session, const std::vector<RolloutGroup>& groups, const GroupRange& of_step);

  int64_t num_rows() const { return num_rows_; }
  const std::vector<PlacedAnswer>& placed() const { return placed_; }
  /// Fills the tensors of the micro-batch that begins at row `first`. `weighs`: with model::PolicyInput.
  void load(const engine::BatchTensors& to, int64_t first, bool weighs) const;

 private:
  const Session& s_;
  const std::vector<RolloutGroup>& groups_;
  std::vector<PlacedAnswer> placed_;
  int64_t num_rows_ = 0;
};

}  // namespace trireme::train
