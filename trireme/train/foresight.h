// --predict: what a step will take by the machine's hardware file, told before the first step, and beside what the
// steps took at the end.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/meter.h"
#include "trireme/base/stopwatch.h"
#include "trireme/costs/step_costs.h"
#include "trireme/train/session.h"

namespace trireme::train {

class Foresight {
 public:
  /// Predicts a step of the session's plan.
  /// Errors    as check_foresight
  explicit Foresight(const Session& session);

  /// "predict  812 ms a step, ..." and where the time goes.
  std::string before() const;

  /// Calls take(), a step on this thread, and notes what it took.
  template <class Take>
  auto watch(const Take& take) {
    const base::ActivitySeconds before = base::activity_seconds();
    const base::Stopwatch watch;
    auto result = take();
    note(watch.seconds(), before);
    return result;
  }

  /// A table of both, cause by cause, and of memory; before the third step only that there is none.
  std::string after() const;
  /// The same as JSON: predicted_seconds, measured_seconds, actions (both, by kind of action), planned_bytes.
  std::string json() const;
  /// Writes json() to out_dir/prediction.json, and returns after().
  std::string finish() const;

 private:
  struct Measured {
    double step = 0;
    costs::CauseSeconds causes{};
    std::map<schedule::ActionKind, double> actions;  ///< of the first rank's own thread, all of a kind
  };
  /// The step with the median time, of the first thousand without the first two; its causes add up to it.
  std::optional<Measured> median() const;
  void note(double seconds, const base::ActivitySeconds& before);

  const Session& s_;
  costs::Prediction predicted_;
  std::vector<Measured> steps_;
};

/// Errors    UsageError: a run with settings.predict on GPUs, or on a machine without a hardware file
void check_foresight(const Settings& settings);

}  // namespace trireme::train
