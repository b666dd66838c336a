// The verdict on a hang: who is missing where, and what it does. From the ranks' flight recorders (base/flight_file.h)
// and a look at their processes, so it needs no rank's help and no group that still works.
//
// Each rank that waits says for which call; the recorders say which ranks have made it. Who waits is led to who is
// waited for, and that one perhaps to the next, until a rank comes that waits for nobody: that is the one to name.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/flight_file.h"
#include "trireme/launch/process_look.h"

namespace trireme::launch {

/// In the folder of the recorders: what the ranks of another launcher said of a hang while they lived.
constexpr const char* kVerdictName = "hang.txt";

struct RankView {
  base::FlightLog log;
  std::optional<ProcessLook> process = {};  ///< empty: on another machine
};

struct HangVerdict {
  std::vector<int> stuck;  ///< global ranks that the others wait for; empty when all wait for each other
  std::string sentence;  ///< "rank 1 has not joined all_gather #48,211 of group gather (...) for 30s; it sleeps ..."
  std::string details;  ///< lines, each begins with two blanks and ends
  std::int64_t waited_us = 0;  ///< of the rank that has waited longest
  std::string key;  ///< the same for the same hang at the same step: no times, no process ids
};

/// The ranks of the newest job in `folder`, with a look at those whose processes run on this machine.
std::vector<RankView> view_ranks(const std::filesystem::path& folder);

/// Fills in the stack of a rank's process, where it runs here.
void add_stack(RankView& rank);

/// Empty when no rank waits, or has given up waiting, for anything. `now_us` is the time that waits are counted to
/// where a rank has not given up.
std::optional<HangVerdict> find_hang(std::span<const RankView> ranks, std::int64_t now_us);

/// The verdict on the job that `folder` tells of, now, with the stacks of those who are waited for.
std::optional<HangVerdict> look_for_hang(const std::filesystem::path& folder);

/// What each rank does, a line each.
std::string describe_ranks(std::span<const RankView> ranks, std::int64_t now_us);

/// A rank's last `count` calls, a line each, oldest first.
std::string describe_calls(const base::FlightLog& log, std::size_t count);

/// The time that a verdict on `ranks` counts to: now while one of them lives, else the last that is heard of them.
std::int64_t time_of_view(std::span<const RankView> ranks);

}  // namespace trireme::launch
