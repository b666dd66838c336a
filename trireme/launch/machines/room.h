// Whether a machine has room for the ranks that are to start on it. Every launcher checks this before the first process
// starts. A thousand ranks on two cores would fill the memory with copies of LibTorch before any of them computes.
//
// Ranks that share a core are slow but correct, and useful to try a mesh. So eight ranks per core may start, and
// sixteen on any machine. Memory cannot be shared like that: the planned memory, and each rank's own, must be free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::launch {

constexpr int kMostRanksOnOneHost = 1024;
constexpr int kRanksPerCore = 8;  ///< that may share a core
constexpr int kAlwaysAllowedRanks = 16;
/// Memory that a rank of Trireme needs besides its plan: data of LibTorch and the heap. A rank that plans 1 MiB had
/// 62.5 MiB of private memory; its code is shared.
constexpr std::int64_t kBytesOfARank = std::int64_t{64} << 20;

/// What this process may use on a machine.
struct HostRoom {
  int cores = 1;  ///< by affinity, cpuset and quota
  std::int64_t free_bytes = 0;  ///< without swapping, within the control groups' limits
  bool is_limited = false;  ///< a control group limits the memory
};

HostRoom room_of_this_host();

/// What ranks need.
struct RoomNeeded {
  int num_ranks = 1;
  std::int64_t bytes_of_a_rank = kBytesOfARank;  ///< 0: unknown, a rank of another program
  std::int64_t planned_bytes = 0;  ///< of all ranks together; 0: nothing is planned, or not yet
};

/// Why the ranks should not start, in one sentence with the numbers and the way out; empty if there is room.
std::optional<std::string> lacks_room(const HostRoom& room, const RoomNeeded& needed);

/// Errors    UsageError if this machine has no room for the ranks and `oversubscribe` is false; always for more than
///           kMostRanksOnOneHost ranks
void require_room(const RoomNeeded& needed, bool oversubscribe);

}  // namespace trireme::launch
