// Writes a rank's pieces into the files of a checkpoint, in the order of the files, and hashes them on the way.
//
// A block of the manifest (1 MiB) that this rank fills alone is hashed from memory just before it is written, while it
// is in the cache: what was meant is what the manifest says. Blocks that several ranks fill have to be read back by
// one of them (hash_blocks) when all have written. Headers are known to all ranks and written by rank 0, so the first
// block of a file needs no exchange either.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "trireme/checkpoint/save_plan.h"

namespace trireme::checkpoint {

struct BlockHash {
  int64_t block = 0;  ///< counted through all files (SavePlan::first_block)
  uint64_t hash = 0;
};

/// Told about bytes done, of those to be done.
using BytesDone = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

/// Writes and flushes `pieces`, headers too where asked.
///
/// Cost      one buffer of 4 MiB; whole pages go past the page cache where the file system allows it (staged_file.h)
/// Errors    base::FileError; CheckpointError when the folder is not to be seen from here. Returns early, with fewer
///           hashes, when `stop` is requested
std::vector<BlockHash> write_pieces(const SavePlan& plan, const std::filesystem::path& folder,
                                    std::span<const Piece> pieces, bool with_headers, const BytesDone& done,
                                    std::stop_token stop);

/// Reads `blocks` (ascending) back and hashes them. Errors and `stop` as above.
std::vector<BlockHash> hash_blocks(const SavePlan& plan, const std::filesystem::path& folder,
                                   std::span<const int64_t> blocks, const BytesDone& done, std::stop_token stop);

}  // namespace trireme::checkpoint
