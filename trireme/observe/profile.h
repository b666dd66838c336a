// Profile: what takes the time of training steps, and what would win it back. `--profile` and training loops of your
// own (engine/trainer.h) use it alike:
//
//     trireme::observe::Profile profile(trainer.model(), trainer.engine(), {.run = {.samples_per_step = 64}});
//     for (int64_t step = 1; step <= steps; ++step) {
//       profile.begin_step(step);
//       ...                                                  // backward(), step()
//       profile.end_step();
//       if (profile.is_complete()) std::cout << profile.report();
//     }
//
// It measures a window of steps on every rank, after some that warm up. Every moment of a step belongs to one cause
// (base/meter.h); time that a loop spends on its data counts as data inside `base::Metered(base::Activity::data)`.
// The rules that judge the figures are pure functions (diagnosis.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/stopwatch.h"
#include "trireme/costs/operation_timer.h"
#include "trireme/engine/engine.h"
#include "trireme/observe/diagnosis.h"
#include "trireme/observe/host_usage.h"
#include "trireme/observe/step_watch.h"

namespace trireme::observe {

struct ProfileOptions {
  int64_t steps = 10;  ///< of the window
  int64_t warmup = 3;  ///< steps before it
  /// What the profile cannot know, the same on all ranks; the window, the engine's part and memory are filled in.
  RunFacts run = {};
  std::filesystem::path folder = {};  ///< of profile.json, profile.txt, profile.trace.json; it is made; empty: no files
  /// Runs what writes a file, and returns a line on one that cannot be written, or ""; empty: its error is thrown.
  std::function<std::string(const std::function<void()>& write)> guard = {};
};

class Profile {
 public:
  /// Measures how much of a core each thread has. Every rank must call.
  Profile(const model::Model& model, engine::Engine& engine, ProfileOptions options);

  /// Begins the window if `step` is its first. begin_step() does so too: a loop calls this before work for the step
  /// that is no part of it, such as writing the answers that it learns from.
  void open(int64_t step);

  /// Right before a step's work on this thread, and right after it; `step` is the number of the step. Every rank must
  /// call: the window's last step begins on all ranks together, so that their timelines fit.
  /// @param filled  share of the step's rows that held something: tokens, samples and operations count by it
  void begin_step(int64_t step);
  void end_step(double filled = 1);

  /// What a loop does between steps. It counts once the next step of the window begins: what follows the window's last
  /// step, such as a run's last evaluation and save, is no part of it.
  enum class Between { answers, evaluation, save };
  void between_steps(Between what, double seconds);

  /// Whether the window has been measured, and not reported yet.
  bool is_complete() const { return measured_ == options_.steps && !told_; }
  /// Ends the window, which may be cut short. Returns the text on rank 0, and writes the files there; otherwise "".
  ///
  /// Cost      a step with the profile takes under 1 % longer (docs/profiling.md); this call gathers the figures and
  ///           the last step's timeline of all ranks
  /// Ordering  every rank must call
  /// Errors    FileError on rank 0, without ProfileOptions::guard
  std::string report();

 private:
  RankWindow window() const;
  std::string units_text() const;

  const model::Model& model_;
  engine::Engine& engine_;
  ProfileOptions options_;
  double core_share_;
  std::vector<int> cpus_;  ///< that this thread may use
  int64_t first_ = 0, last_ = 0;  ///< steps of the window
  int64_t measured_ = 0;
  bool told_ = false;
  base::Stopwatch watch_;
  HostUsage before_;
  std::optional<HostUsage> used_;  ///< of a window that is complete
  RankWindow mine_;
  struct {
    double answers = 0, evaluation = 0, saves = 0;
  } after_step_;  ///< seconds between the last step and the next one, if there is one
  double filled_ = 0;  ///< steps of the window, each by its share of rows
  std::optional<StepWatch> step_;
  std::optional<costs::OperationTimer> timer_;
  double cpu_before_ = 0, off_core_ = 0;  ///< seconds of this thread: on a core before the step; in steps, on none
  std::vector<engine::ActionTime> last_step_;
  std::map<int, double> units_;  ///< seconds in actions of a unit, by its number
};

}  // namespace trireme::observe
