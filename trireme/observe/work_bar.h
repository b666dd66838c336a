// Lines on standard error about work that takes longer than two seconds: on a terminal one that updates in place, in a
// pipe or file another one every ten seconds.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

#include "trireme/base/crew.h"

namespace trireme::observe {

/// The line itself.
class LateLine {
 public:
  explicit LateLine(std::FILE* out = stderr);
  LateLine(const LateLine&) = delete;
  /// Erases what a terminal shows.
  ~LateLine();

  /// Whether it is time to show() another text. Cheap enough to ask for every small part of the work.
  bool is_due() const { return Clock::now() >= next_; }
  void show(const std::string& text);
  double seconds_so_far() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::FILE* out_;
  bool terminal_, drawn_ = false;
  Clock::time_point start_, next_;
};

/// The finished fraction of work that has parts.
class WorkBar {
 public:
  /// @param what  "perplexity", "loading weights"
  explicit WorkBar(std::string what, std::FILE* out = stderr) : what_(std::move(what)), line_(out) {}

  /// `done`: the finished fraction of the work.
  void show(double done);

 private:
  std::string what_;
  LateLine line_;
};

/// How long work without parts has taken so far. A thread writes the line until this is destroyed.
class Waiting {
 public:
  /// @param what  "planning"
  explicit Waiting(std::string what, std::FILE* out = stderr);
  ~Waiting();

 private:
  void tell();

  std::string what_;
  std::FILE* out_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;
  base::Crew crew_;  // the last member: its thread uses the others
};

/// "perplexity  [##########..........]  52 %  eta 8s". Pure, for tests.
std::string work_bar_text(const std::string& what, double done, double seconds_so_far);

}  // namespace trireme::observe
