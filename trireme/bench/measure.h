// Timing a call until its figure stands, and saying meanwhile that something happens.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/stopwatch.h"

namespace trireme::bench {

struct Budget {
  double seconds = 0.3;  ///< for all samples of one row
  int64_t least = 5;  ///< samples, whatever they take; 3 where one takes longer than `seconds`
  int64_t most = 2000;

  /// `quick` is what --quick means: enough to see that it works, too little to believe the figures.
  static Budget of(bool quick) { return quick ? Budget{.seconds = 0.02, .least = 3, .most = 50} : Budget{}; }
};

/// Seconds of single calls, after one that is not timed. Calls shorter than 20 us are timed several at a time. With
/// `prepare`, which is not timed, before every call: for calls that overwrite what they read. `beside`, which is not
/// timed here either, after every sample: for a limit that meets the same disturbances.
std::vector<double> time_calls(const std::function<void()>& call, const Budget& budget,
                               const std::function<void()>& prepare = {}, const std::function<void()>& beside = {});

/// Says on standard error what is being measured, once two seconds have passed: one line that updates on a terminal,
/// a line every ten seconds elsewhere.
class Progress {
 public:
  explicit Progress(std::string what, bool shown = true);
  Progress(const Progress&) = delete;
  ~Progress();

  void step(int64_t done, int64_t total, const std::string& name);

 private:
  std::string what_;
  base::Stopwatch watch_;
  double next_ = 2;  // seconds
  bool shown_, terminal_, line_open_ = false;
};

}  // namespace trireme::bench
