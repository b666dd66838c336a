// Collectives about files: ranks exchange numbers and texts of a few KiB on CPU tensors, and whether all succeeded.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

/// What ended the work of a rank and is no refusal: no memory, a bug. The command line exits with 1. A rank that is not
/// the one that failed reports it as a consequence.
struct RankError : Error {
  RankError(const std::string& message, bool is_own_) : Error(message), is_own(is_own_) {}
  bool is_own;  ///< this rank is the one that failed
};

/// Returns all ranks' numbers in rank order, on every rank; counts[rank] is how many a rank gives. All ranks must call
/// this and the functions below.
std::vector<int64_t> all_gather_numbers(comm::Communicator& world, std::span<const int64_t> mine,
                                        const std::vector<int64_t>& counts);

/// The same on rank 0; empty elsewhere.
std::vector<int64_t> gather_numbers(comm::Communicator& world, std::span<const int64_t> mine,
                                    const std::vector<int64_t>& counts);

/// Rank `root`'s text on every rank.
std::string broadcast_text(comm::Communicator& world, const std::string& text, int root);

/// flags[i] becomes true if it is true on any rank.
void any_rank(comm::Communicator& world, std::vector<uint8_t>& flags);

/// Runs `work` on this rank and returns when it has succeeded on every rank; also a barrier. Reading and writing files
/// may fail on one rank alone (a full disk, a bad sector). The others would then hang in the next collective.
///
/// Cost      one all_reduce of 8 bytes; on failure two more small broadcasts
/// Ordering  every rank of `world` must call; if `work` fails, no other rank may wait for its messages
/// Errors    the same on every rank, with the message of the lowest rank that failed. A UsageError (FileError where the
///           file system failed) and a CheckpointError (StorageError, DamagedError, UnreadableError) keep their kind;
///           all others become RankError. CommError passes through unchanged (the group is then unusable)
void agree(comm::Communicator& world, const std::function<void()>& work);

/// agree() on work that makes a value: returns what `make` returned on this rank. Every rank must call.
/// Errors    as agree(), the same on every rank
template <typename Make>
std::invoke_result_t<const Make&> made_on_all(comm::Communicator& world, const Make& make) {
  std::optional<std::invoke_result_t<const Make&>> made;
  agree(world, [&] { made.emplace(make()); });
  return *std::move(made);
}

}  // namespace trireme::checkpoint
