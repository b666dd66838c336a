// One training step of any kind. The loop (train/task.h) adds stops, a time limit and saves.
// Benchmarks time the bare step, because the loop's decision about stops is a collective that would count as the
// step's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "trireme/engine/engine.h"
#include "trireme/train/session.h"

namespace trireme::train {

/// What a step trains on. Every rank has its own object, and all ranks make the same calls.
class StepTask {
 public:
  virtual ~StepTask() = default;

  /// Fills this rank's micro-batch `micro_batch` of step `step` (1 is the first). Called once for each, in order.
  virtual void load(int64_t step, int micro_batch, const engine::BatchTensors& to) = 0;
  /// Supervised tokens of step `step` over all ranks: the loss is their mean. 0: the step has no loss.
  virtual int64_t supervised_tokens(int64_t step) const = 0;
  virtual double learning_rate(int64_t step) const = 0;
  /// Rows of step `step` over all ranks, if rows behind them have no supervised token. Nothing is computed for
  /// micro-batches that hold only such rows.
  virtual std::optional<int64_t> used_rows(int64_t step) const { return std::nullopt; }
};

struct StepOptions {
  bool begins_together = false;  ///< a barrier first, so that the timelines of all ranks fit together
  std::function<bool()> give_up = {};  ///< as engine::StepInputs
  std::function<bool(bool gave_up)> commit = {};  ///< as engine::StepInputs
};

/// The learning rate of step `step`, which is the next one. As in DeepSpeed, and by its rule only, steps that were
/// skipped do not count.
double learning_rate(const Session& session, const StepTask& task, int64_t step);

/// Places of the rows of a step, padding included. Rows behind used_rows() do not count, so the number is the same on
/// any mesh.
int64_t tokens_of_step(const Session& session, const StepTask& task, int64_t step);

/// The loss of the step that take_step() took; nothing if no token of it was learned.
std::optional<double> loss_of(const Session& session, const engine::StepResult& result);

/// Runs forward, backward and the optimizer over the task's micro-batches. Every rank must call. Counts the
/// step in Session::loss_scale, and notes what it took in Session::last_step.
engine::StepResult take_step(Session& session, StepTask& task, int64_t step, const StepOptions& options = {});

}  // namespace trireme::train
