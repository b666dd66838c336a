// Times a call until the figure is stable, shows progress meanwhile, and measures how memory grows.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/observe/work_bar.h"

namespace trireme::bench {

struct Budget {
  double seconds = 0.3;  ///< for all samples of one row
  int64_t least = 5;  ///< samples, even if they take longer; 3 if one sample takes longer than `seconds`
  int64_t most = 2000;

  /// With `quick` (bench.quick), a run only shows that the benchmark works; its figures mean little.
  static Budget of(bool quick) { return quick ? Budget{.seconds = 0.02, .least = 3, .most = 50} : Budget{}; }
};

/// Returns the seconds of single calls, after one or two warm-up calls. Calls shorter than 20 us are timed several at a
/// time. `prepare` runs untimed before every call, for calls that overwrite what they read. `beside` runs untimed after
/// every sample. It measures the limit that the call is compared with, so that other work on the machine slows both.
std::vector<double> time_calls(const std::function<void()>& call, const Budget& budget,
                               const std::function<void()>& prepare = {}, const std::function<void()>& beside = {});

/// Shows what is being measured, if it takes long.
class Progress {
 public:
  explicit Progress(std::string what, bool shown = true) : what_(std::move(what)), shown_(shown) {}

  void step(int64_t done, int64_t total, const std::string& name);

 private:
  std::string what_;
  bool shown_;
  observe::LateLine line_;
};

/// How much a process's private memory grows from construction to growth(): a thread reads it every 2 ms. Mapped
/// files and shared memory do not count.
class MemoryGrowth {
 public:
  MemoryGrowth();
  /// The largest growth so far, in bytes; ends the thread.
  int64_t growth();

 private:
  int64_t before_;
  std::atomic<int64_t> most_;
  std::jthread thread_;
};

}  // namespace trireme::bench
