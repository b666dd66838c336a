// --predict: what a step will take by the machine's hardware file, told before the first step, and beside what the
// steps took at the end.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/costs/step_costs.h"
#include "trireme/observe/step_time.h"
#include "trireme/train/session.h"

namespace trireme::train {

/// What is said of a step of task rewards.
inline constexpr const char* kWithoutAnswers =
    "the step is what learns from answers; the time of writing them is not predicted";

class Foresight {
 public:
  /// Predicts a step of the session's plan.
  /// Errors    as check_foresight
  explicit Foresight(const Session& session);

  /// "predict  812 ms a step, ..." and where the time goes.
  std::string before() const;

  /// Takes in what a step took.
  void note(const observe::StepTime& step);

  /// A table of both, by cause and by kind of action, and of memory; before the third step only that there is none.
  std::string after() const;
  /// The same as JSON: predicted_seconds, measured_seconds, actions (both, by kind of action), planned_bytes.
  std::string json() const;
  /// Writes json() to out_dir/prediction.json. Errors    FileError
  void write() const;

 private:
  /// The step with the median time, of the first thousand without the first two; its causes add up to it.
  std::optional<observe::StepTime> median() const;
  /// Predicted seconds of the first rank's own work in all actions of a kind.
  std::map<schedule::ActionKind, double> by_kind() const;

  const Session& s_;
  costs::Prediction predicted_;
  std::vector<observe::StepTime> steps_;
};

/// Foresight::before() of a run that is not started, by the plan of its first rank.
/// Errors    as check_foresight
std::string foresee(const Settings& settings, const model::Model& model, const plan::StepPlan& plan);

/// Errors    UsageError: a run with settings.predict on a machine without a hardware file for its processors or its
/// GPU;
///           as costs::check_figures()
void check_foresight(const Settings& settings);

}  // namespace trireme::train
