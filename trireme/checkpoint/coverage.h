// Do the ranks' pieces cover every element of every tensor exactly once? A hole would save zeros, an overlap
// would save whichever rank came last: both are refused before a byte is written.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/save.h"

namespace trireme::checkpoint {

/// Errors    CheckpointError: unknown tensor, range outside it, dtypes that do not convert
void check_piece(const Piece& piece, const std::map<std::string, TensorPlace>& tensors);

/// Pieces as numbers to be gathered: (position of the tensor in the map, begin, end), empty ones left out.
std::vector<int64_t> pack_pieces(std::span<const Piece> pieces, const std::map<std::string, TensorPlace>& tensors);

/// `packed` holds the ranks' packed pieces one after the other, counts[rank] numbers each.
/// Errors    CheckpointError naming the tensor, the elements and, for an overlap, both ranks
void check_exactly_once(const std::map<std::string, TensorPlace>& tensors, std::span<const int64_t> packed,
                        std::span<const int64_t> counts);

}  // namespace trireme::checkpoint
