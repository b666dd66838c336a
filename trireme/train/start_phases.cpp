#include "trireme/train/start_phases.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/launch/identity/start_time.h"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;

// Set when the program's static objects are made, after those of its libraries.
const Clock::time_point loaded_at = Clock::now();

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

StartPhases::StartPhases() : last_(loaded_at) {
  Clock::time_point started = launch::process_start();  // to a hundredth of a second, so it may lie before the job's
  if (const auto job = launch::job_start()) {
    started = std::max(started, *job);
    phases_.push_back({"exec", seconds(started - *job)});
  }
  phases_.push_back({"load", seconds(loaded_at - started)});
}

void StartPhases::end(const char* name) {
  const Clock::time_point now = Clock::now();
  phases_.push_back({name, seconds(now - last_)});
  last_ = now;
}

double StartPhases::total() const {
  double sum = 0;
  for (const Phase& phase : phases_) sum += phase.seconds;
  return sum;
}

std::string StartPhases::text() const {
  std::string list;
  for (const Phase& phase : phases_)
    list += fmt::format("{}{} {:.3f}{}", list.empty() ? "" : ", ", phase.name, phase.seconds, list.empty() ? " s" : "");
  return fmt::format("starting {}; {:.2f} s in all", list, total());
}

}  // namespace trireme::train
