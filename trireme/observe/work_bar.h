// WorkBar shows the progress of work that takes longer than two seconds: on a terminal as a bar that updates in place,
// in a pipe or file as a line every ten seconds.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace trireme::observe {

class WorkBar {
 public:
  /// @param what  "perplexity", "loading weights"
  explicit WorkBar(std::string what, std::FILE* out = stderr);
  WorkBar(const WorkBar&) = delete;
  /// Erases the bar.
  ~WorkBar();

  /// `done`: the finished fraction of the work. Cheap enough to call for every small part.
  void show(double done);

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  std::FILE* out_;
  bool terminal_, drawn_ = false;
  Clock::time_point start_, next_;
};

/// "perplexity  [##########..........]  52 %  eta 8s". Pure, for tests.
std::string work_bar_text(const std::string& what, double done, double seconds_so_far);

}  // namespace trireme::observe
