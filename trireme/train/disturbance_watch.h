// Names what slows a run while it goes on, once: a rank that computes longer than the others, and what disturbs a
// machine from outside (observe/disturbances.h).
#pragma once

#include <array>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/stopwatch.h"
#include "trireme/observe/diagnosis.h"
#include "trireme/observe/disturbances.h"
#include "trireme/observe/host_usage.h"
#include "trireme/train/session.h"

namespace trireme::train {

class DisturbanceWatch {
 public:
  explicit DisturbanceWatch(Session& session);

  /// Call it after each step, on every rank; every 20th call is a collective of some 20 numbers a rank. Returns the
  /// lines to say, on rank 0; otherwise "".
  ///
  /// A look at ranks takes at least 20 steps and 5 seconds. A rank is named if it has computed longer than the median of
  /// the ranks that do the same work (observe::slow_rank): 30 % longer in one look, 25 % in two in a row, or 15 % in
  /// three. It is named once; another rank may follow. What the kernel counts is looked at every 5 seconds at most.
  /// Cost      a look takes 0.36 ms, the exchange that of an all-gather (docs/profiling.md)
  std::string after_step();

 private:
  struct Figures {  // what a rank sends
    double compute = 0, stage = 0;
    observe::HostWindow host;
  };
  Figures figures();
  std::string slow_rank(const std::vector<Figures>& all);

  Session& s_;
  std::string gpu_;  ///< as its driver names it; empty without one
  double cpus_;  ///< stands for the CPUs that this rank may use
  int64_t steps_ = 0;
  double compute_ = 0;  ///< seconds since the last exchange
  // Rank 0: since its last verdict on slow ranks.
  double step_ = 0;  ///< seconds in steps
  int64_t window_steps_ = 0;
  std::vector<observe::RankWindow> windows_;
  double suspect_ = -1;  ///< the rank that computed longest at the last look
  std::array<double, 3> looks_ = {};  ///< by what share it was slower at its last looks in a row, the latest first
  std::set<double> named_;  ///< ranks
  observe::Disturbances disturbances_;

  // Since the kernel's figures were read.
  observe::HostUsage before_;
  base::Stopwatch watch_;
  int64_t host_steps_ = 0;
  double in_steps_ = 0, data_ = 0;
  Saves saves_before_;
};

}  // namespace trireme::train
