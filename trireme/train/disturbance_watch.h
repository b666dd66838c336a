// Names what slows a run while it goes on, once: a rank that computes longer than the others, and what disturbs a
// machine from outside (observe/disturbances.h).
#pragma once

#include <array>
#include <optional>
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
  /// A look goes back at least 20 steps and 5 seconds. A rank is named if it has computed longer than the median of the
  /// ranks that do the same work (observe::slow_rank): 30 % longer in one look, 25 % in two in a row, or 15 % in three.
  /// What its thread waited for a core does not count: another program is named for it. A rank is named once; another
  /// one may follow.
  /// Cost      a look takes 0.36 ms, the exchange that of an all-gather (docs/profiling.md)
  std::string after_step();

 private:
  struct Figures {  // what a rank sends
    double compute = 0, waited = 0;  ///< seconds; waited: its thread, for a core
    double stage = 0;
    observe::HostWindow host;
  };
  /// `now`: absent if the look is not over.
  Figures figures(const std::optional<observe::HostUsage>& now) const;
  std::string slow_rank(const std::vector<Figures>& all, double seconds, int64_t steps);

  Session& s_;
  std::string gpu_;  ///< as its driver names it; empty without one
  double cpus_;  ///< stands for the CPUs that this rank may use
  // Since the last look.
  observe::HostUsage before_;
  base::Stopwatch watch_;
  int64_t steps_ = 0;
  double in_steps_ = 0, compute_ = 0, data_ = 0;  ///< seconds
  Saves saves_before_;

  // Rank 0
  double suspect_ = -1;  ///< the rank that computed longest at the last look
  std::array<double, 3> looks_ = {};  ///< by what share it was slower at its last looks in a row, the latest first
  std::set<double> named_;  ///< ranks
  observe::Disturbances disturbances_;
};

}  // namespace trireme::train
