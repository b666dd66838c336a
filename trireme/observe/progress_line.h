// Shows a run's progress on standard error or any stream. On a terminal one line updates in place:
//
//   step   240/1000  loss 1.482  |g| 0.61  lr 1.9e-03  12,430 tok/s  71 % of peak  412 MiB  eta 2m41s
//
// and loses fields from its right where the terminal is narrower. Into a pipe or file, the same line is
// printed whole every `log_interval` steps. Facts worth keeping (an evaluation, a phase that took a while)
// are lines of their own above it. Colour only on a terminal, and never where NO_COLOR is set (no-color.org).
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "trireme/base/progress.h"

namespace trireme::observe {

/// The line for `event` without colour or line end, fields dropped from the right until it has at most
/// `width` columns (0: no limit); step and loss always stay. Fields that are not known are left out.
std::string format_progress(const base::StepEvent& event, int width = 0);

struct ProgressLineOptions {
  std::FILE* out = stderr;
  bool terminal = false;                         ///< update in place
  bool color = false;
  int width = 0;                                 ///< columns; 0: ask the terminal each time, 80 when it does not say
  int64_t log_interval = 1;  ///< steps from one plain line to the next; a terminal shows every step
  std::chrono::milliseconds refresh{100};  ///< a terminal's line changes no more often
  std::chrono::duration<double> told_phase{0.5};  ///< shorter phases are not worth a line
};

/// Options that suit `out`: a terminal or not, colour or not (NO_COLOR, TERM=dumb).
ProgressLineOptions progress_options_for(std::FILE* out);

class ProgressLine final : public base::ProgressSink {
 public:
  explicit ProgressLine(ProgressLineOptions options) : options_(options) {}
  ProgressLine(const ProgressLine&) = delete;
  ~ProgressLine() override { finish(); }

  void step(const base::StepEvent& event) override;
  void phase(const base::PhaseEvent& event) override;

  /// Prints `line` above the progress line.
  void say(const std::string& line);

  /// Leaves the newest step as a last line; more steps may follow.
  void finish();

 private:
  void draw(std::string line);
  void erase();
  int width() const;

  ProgressLineOptions options_;
  std::optional<base::StepEvent> newest_;
  bool newest_kept_ = false;  // the newest step stands on a line of its own
  bool line_open_ = false;  // the cursor stands behind text that may be overwritten
  std::chrono::steady_clock::time_point drawn_at_{};
};

}  // namespace trireme::observe
