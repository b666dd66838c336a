// Names a rank that computes longer than the others, once, while a run goes on.
#pragma once

#include <string>

#include "trireme/train/session.h"

namespace trireme::train {

class SlowRankWatch {
 public:
  explicit SlowRankWatch(Session& session) : s_(session) {}

  /// Call it after each step, on every rank; every 20th call is a collective of three numbers a rank. Returns the line
  /// to say, on rank 0; otherwise "".
  ///
  /// A rank is named if it has computed at least 15 % longer, over 20 steps, than the median of the ranks that do the
  /// same work (observe::slow_rank). It is named once; another rank may follow.
  std::string after_step();

 private:
  Session& s_;
  int64_t steps_ = 0;
  double compute_ = 0, step_ = 0;  ///< seconds since the last exchange
  double named_ = -1;  ///< the rank that was named last
};

}  // namespace trireme::train
