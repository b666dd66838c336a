// Whether a machine has room for the ranks that are to start on it: the one rule for every starter, asked before the
// first process. A thousand ranks on two cores fill the memory with copies of LibTorch before any of them computes.
//
// Sharing a core is slow and right: more ranks than cores are for trying a mesh, so eight ranks a core, and sixteen on
// any machine, may start. Memory has no such slack: what the ranks plan and what each needs for itself has to be free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::launch {

constexpr int kMostRanksOnOneHost = 1024;
constexpr int kRanksPerCore = 8;  ///< that may share a core
constexpr int kAlwaysAllowedRanks = 16;
/// A rank of Trireme beside what it plans: data of LibTorch and the heap. 62.5 MiB of private memory were measured in a
/// rank that plans 1 MiB; its code is shared.
constexpr std::int64_t kBytesOfARank = std::int64_t{64} << 20;

/// What there is on a machine.
struct HostRoom {
  int cores = 1;  ///< that this process may use, or the quota if that is less
  std::int64_t free_bytes = 0;
  bool is_limited = false;  ///< it is the control group that leaves no more memory
};

/// Of this machine, for this process, now: cores by affinity, cpuset and quota; memory that can be had without pushing
/// anybody out, and no more than what the control groups leave.
HostRoom room_of_this_host();

/// What ranks need of it.
struct RoomNeeded {
  int num_ranks = 1;
  std::int64_t bytes_of_a_rank = kBytesOfARank;  ///< 0: another program's, of which nothing is known
  std::int64_t planned_bytes = 0;  ///< of all of them together; 0: nothing is planned, or not yet
};

/// Why the ranks should not start, in one sentence with the numbers and the way out; nothing where there is room.
std::optional<std::string> lacks_room(const HostRoom& room, const RoomNeeded& needed);

/// Errors    UsageError where the ranks have no room on this machine and `oversubscribe` does not allow that, and for
///           more than kMostRanksOnOneHost in any case
void require_room(const RoomNeeded& needed, bool oversubscribe);

}  // namespace trireme::launch
