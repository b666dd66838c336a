// The verdict on a hang: which rank is missing in which call, and what that rank does instead. The facts come from the
// ranks' flight recorders (files with their latest calls, base/flight_file.h) and a look at their processes. The ranks
// need not answer, and their process groups may be broken.
//
// The recorder of a waiting rank names the call for which it waits; the other recorders tell which ranks have made that
// call. So each waiting rank leads to a missing rank, which may itself wait for another. The verdict names the rank at
// the end of this chain, which waits for nobody.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/flight_file.h"
#include "trireme/launch/hang/process_look.h"

namespace trireme::launch {

/// A file in the recorders' folder. The launcher writes the verdict there; under another launcher, a rank.
constexpr const char* kVerdictName = "hang.txt";

struct RankView {
  base::FlightLog log;
  std::optional<ProcessLook> process = {};  ///< empty: on another machine
};

struct HangVerdict {
  std::vector<int> stuck;  ///< global ranks that the others wait for; empty when all wait for each other
  std::string sentence;  ///< "rank 1 has not joined all_gather #48,211 of group gather (...) for 30s; it sleeps ..."
  std::string details;  ///< lines, each with two leading blanks and a newline
  std::int64_t waited_us = 0;  ///< by the rank that has waited longest
  std::string key;  ///< a text without times and process ids: equal for the same hang at the same step
};

/// The ranks of the newest job in `folder`, with a look at their processes on this machine.
std::vector<RankView> view_ranks(const std::filesystem::path& folder);

/// Fills in the stack of a rank's process, if it runs on this machine.
void add_stack(RankView& rank);

/// Empty if no rank waits and none has given up waiting. A wait that still goes on is measured until `now_us`.
std::optional<HangVerdict> find_hang(std::span<const RankView> ranks, std::int64_t now_us);

/// The present verdict on the job whose recorders are in `folder`, with the stacks of the missing ranks.
std::optional<HangVerdict> look_for_hang(const std::filesystem::path& folder);

/// What each rank does, one line per rank.
std::string describe_ranks(std::span<const RankView> ranks, std::int64_t now_us);

/// A rank's last `count` calls, one per line, oldest first.
std::string describe_calls(const base::FlightLog& log, std::size_t count);

/// The `now_us` for find_hang(ranks): the present if one of their processes lives, else the last recorded time.
std::int64_t time_of_view(std::span<const RankView> ranks);

// The words of a verdict (hang_words.cpp).

/// A rank that a waiting rank depends on: it has not made the call, not finished it, or sent no message.
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

/// "all_gather #48,211 of group gather (Unshard(block 7) of step 812, 1,048,576 bfloat16, 2.0 MiB)". Unless `exact`,
/// the text leaves out the call's number.
std::string say_call(const base::FlightRecord& record, bool exact);

/// "rank 1 has not joined <call> for 30s".
std::string say_missing(const std::vector<int>& ranks, HangBlocker::Kind kind, const HangCall& call);

/// "sleeps in hrtimer_nanosleep, in Forward(block 9) of step 812 for 31s"; "has ended after all_reduce #4 ...".
std::string say_doing(const RankView& rank, std::int64_t now_us);

/// "  rank 1 is pid 4711 on host a; stack: usleep < load_batch\n".
std::string say_process(const RankView& rank);

/// "ranks 0, 1 on a and ranks 2, 3 on b"; names no machine if there is only one.
std::string name_by_host(std::span<const RankView> views, const std::vector<int>& ranks);

}  // namespace trireme::launch
