// Numbers and texts between ranks, as checkpoints need them: a few KiB, on CPU tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

/// Every rank's numbers, counts[rank] of them, in rank order; on every rank. All ranks must call, as below.
std::vector<int64_t> all_gather_numbers(comm::Communicator& world, std::span<const int64_t> mine,
                                        const std::vector<int64_t>& counts);

/// The same on rank 0; empty elsewhere.
std::vector<int64_t> gather_numbers(comm::Communicator& world, std::span<const int64_t> mine,
                                    const std::vector<int64_t>& counts);

/// Rank `root`'s text on every rank.
std::string broadcast_text(comm::Communicator& world, const std::string& text, int root);

/// flags[i] = true where it is on any rank.
void any_rank(comm::Communicator& world, std::vector<uint8_t>& flags);

}  // namespace trireme::checkpoint
