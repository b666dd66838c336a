// The words of a verdict on a hang (hang.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/launch/hang.h"

namespace trireme::launch {

/// A rank that a waiting one cannot go on without, and why.
struct HangBlocker {
  enum class Kind { not_called, not_done, no_message, unknown };
  int global_rank;
  Kind kind;
};

/// A call that a rank waits in.
struct HangCall {
  const base::FlightRecord* record;
  std::string group;
  std::int64_t waited_us;
  int waiting_rank;
};

/// "all_gather #48,211 of group gather (Unshard(block 7) of step 812, 1,048,576 bfloat16, 2.0 MiB)"; the number of the
/// call only with `exact`, the step always.
std::string say_call(const base::FlightRecord& record, bool exact);

/// "rank 1 has not joined <call> for 30s".
std::string say_missing(const std::vector<int>& ranks, HangBlocker::Kind kind, const HangCall& call);

/// "sleeps in hrtimer_nanosleep, in Forward(block 9) of step 812 for 31s"; "has ended after all_reduce #4 ...".
std::string say_doing(const RankView& rank, std::int64_t now_us);

/// "  rank 1 is pid 4711 on host a; stack: usleep < load_batch\n".
std::string say_process(const RankView& rank);

/// "ranks 0, 1 on a and ranks 2, 3 on b"; without machines where there is one.
std::string name_by_host(std::span<const RankView> views, const std::vector<int>& ranks);

}  // namespace trireme::launch
