// --profile: measures a window of steps on every rank, with evaluations and saves between them, and says what takes the
// time and what would win it back (observe/diagnosis.h). Writes profile.json, profile.txt and profile.trace.json.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/stopwatch.h"
#include "trireme/costs/operation_timer.h"
#include "trireme/observe/diagnosis.h"
#include "trireme/observe/host_usage.h"
#include "trireme/train/step_watch.h"

namespace trireme::train {

class Profile {
 public:
  /// Every rank must call.
  /// @param peak_flops           of all ranks (train/pace.h)
  /// @param evaluation_interval  steps; 0: none
  Profile(Session& session, double peak_flops, int64_t evaluation_interval);

  /// Right before a step's work on this thread, and note() right after it; `step` is the number of the step.
  void begin_step(int64_t step);
  void note(const StepTime& step);
  /// Evaluations and saves.
  void phase(std::string_view name, double seconds);
  /// Whether `step` is the window's last: then its timeline is written, and it must begin on all ranks together.
  bool is_last(int64_t step) const { return step == last_; }
  /// After a step, with everything that follows it. Every rank must call. Returns the report at the end of the window,
  /// on rank 0; otherwise "".
  std::string end_step(int64_t step);
  /// At the end of the run: the report of a window that the run has cut short. Every rank must call.
  std::string finish();

 private:
  std::string report();
  observe::RankWindow window() const;
  std::string units_text() const;

  Session& s_;
  double core_share_;
  observe::RunFacts run_;
  int64_t first_ = 0, last_ = 0;  ///< steps of the window
  int64_t measured_ = 0;
  bool told_ = false;
  base::Stopwatch watch_;
  observe::HostUsage before_;
  observe::RankWindow mine_;
  std::optional<costs::OperationTimer> timer_;
  double cpu_before_ = 0, off_core_ = 0;  ///< seconds of this thread: on a core before the step; in steps, on none
  std::map<int, double> units_;  ///< seconds in actions of a unit, by its number
};

}  // namespace trireme::train
