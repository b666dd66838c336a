// Task: what distinguishes one kind of training from another: its data, its learning rate, when it ends, what it saves
// and how the model is judged. run_task() does the rest, the same for every task. docs/adding-a-task.md shows one.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/progress.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/session.h"
#include "trireme/train/step.h"

namespace trireme::train {

/// The ranks agree whether the run stops; returns true if it does. Every rank must call: it is also a barrier.
using StopCheck = std::function<bool()>;

/// The loop calls `load`, `supervised_tokens` and `learning_rate` only after restore().
class Task : public StepTask {
 public:
  /// Continues the run that `state` describes; step 0 is a new run. Writes into `state` what every save of this run
  /// holds: the data's identity and the files beside the model.
  ///
  /// @returns  one line for the user if the task does not continue at the place in `state`; otherwise ""
  /// Errors    UsageError if the task cannot continue from there
  virtual std::string restore(RunState& state) = 0;

  /// Called before each step, on every rank: what the step learns from, if the model itself makes it. Calls `stops`
  /// while it works; the loop then ends the run if the ranks agreed to stop. `gives_up`: whether the step would not end
  /// in the time that a stop leaves, as this rank knows.
  virtual void prepare(int64_t step, const StopCheck& stops, const std::function<bool()>& gives_up) {}

  /// Called after each step that counts. Moves on, and writes the new place in the data into `state`. The loop itself
  /// counts steps and tokens.
  virtual void after_step(RunState& state) = 0;

  /// Steps of the whole run, including those before a resume; 0: a time limit or a stop ends it.
  virtual int64_t num_steps() const = 0;
  /// Passes over the training data so far.
  virtual double epoch() const = 0;

  /// Samples that evaluate() uses; 0: there is nothing to evaluate.
  virtual int64_t held_out_samples() const = 0;
  /// Mean held-out loss. Calls `stops` after each round, and returns nothing if the ranks stop, or if what is held out
  /// has no loss (add_measures). `is_asked_to_stop`: whether this rank knows of such a request, for what takes long
  /// between two calls of `stops`.
  virtual std::optional<double> evaluate(const StopCheck& stops, const std::function<bool()>& is_asked_to_stop) = 0;

  /// The units' measures of the last evaluation, as engine::StepResult::measures.
  virtual std::vector<double> held_out_measures() const { return {}; }
  /// What the evaluation before training found, in words, if that is no loss.
  virtual std::string held_out_text() const { return ""; }

  /// Adds to a step's measures those that no unit of the model takes; `evaluated`: evaluate() has just run.
  virtual void add_measures(base::StepEvent& event, bool evaluated) const {}

  /// Whether sample() has anything to write.
  virtual bool samples() const { return false; }
  /// A line that rank 0 prints after each evaluation: what the model says now to one prompt. "": nothing, or another
  /// rank. Every rank must call. Calls `stops` while it works.
  virtual std::string sample(const StopCheck& stops) { return ""; }

  /// What the start says about the task's data. Called on rank 0 only.
  virtual std::vector<std::string> introduction() const = 0;
  /// The unit of the loss: "nats a byte".
  virtual std::string loss_unit() const = 0;
};

/// Makes the task of a run that resumes the checkpoint `resume` (empty: a new run), and finds its data. If one rank
/// works while the others wait, all ranks call `stops` afterwards; the loop then ends the run if they agreed to stop.
using MakeTask =
    std::function<std::unique_ptr<Task>(Session& session, const std::filesystem::path& resume, const StopCheck& stops)>;

/// The loop: trains the task until its end, a stop request or a time limit, saves, and returns the exit code: 0, or 75
/// when the run was stopped early and can be resumed. Every rank must call.
///
/// The order of a step: take_step(), in which all ranks decide before the optimizer whether the step counts; the next
/// phase of a save beside training; the check of the loss; then evaluation, the progress line and a save, if due.
///
/// Errors    UsageError, also for settings that validate() refuses; CheckpointError, CommError; Error if a step's loss
/// is
///           not finite
int run_task(const Settings& settings, const launch::RankEnvironment& environment, const MakeTask& make_task);

}  // namespace trireme::train
