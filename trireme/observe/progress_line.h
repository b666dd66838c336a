// Shows a run's progress on standard error or any stream. On a terminal one line updates in place:
//
//   step   240/1000  loss 1.482  |g| 0.61  lr 1.9e-03  12,430 tok/s  71 % of peak  412 MiB  eta 2m41s
//
// If the terminal is narrower, the line drops fields on its right. Into a pipe or file, the complete line is printed
// every `log_interval` steps. Evaluations and longer phases get their own lines above it. Colour is used on a terminal
// only, and never if NO_COLOR is set (no-color.org).
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "trireme/base/progress.h"

namespace trireme::observe {

/// The line for `event` without colour or line end. Unknown fields are left out, and fields are dropped from the right
/// until the line has at most `width` columns (0: no limit); step and loss always stay.
std::string format_progress(const base::StepEvent& event, int width = 0);

struct ProgressLineOptions {
  std::FILE* out = stderr;
  bool terminal = false;  ///< update in place
  bool color = false;
  int width = 0;  ///< columns; 0: ask the terminal each time, 80 if that fails
  int64_t log_interval = 1;  ///< steps between two plain lines; a terminal shows every step
  std::chrono::milliseconds refresh{100};         ///< the shortest time between two updates on a terminal
  std::chrono::duration<double> told_phase{0.5};  ///< shorter phases get no line
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
  bool newest_kept_ = false;  // the newest step has its own line
  bool line_open_ = false;    // the cursor is behind text that may be overwritten
  std::chrono::steady_clock::time_point drawn_at_{};
};

}  // namespace trireme::observe
