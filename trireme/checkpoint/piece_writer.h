// Writes a rank's pieces into the files of a checkpoint, in the order of the files, and hashes the blocks.
//
// If this rank alone fills a block of the manifest (1 MiB), it hashes the block in memory just before writing it, while
// the block is in the processor's cache. So the hash is that of the intended bytes. If several ranks fill a block, one
// of them reads it back (hash_blocks) after all have written. Only rank 0 writes the headers, but all ranks know them,
// so the first block of a file can be hashed from memory too.
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

/// Called with the bytes done and the bytes to do.
using BytesDone = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

/// Writes and flushes `pieces`, and the headers if `with_headers`.
///
/// Cost      one buffer of 4 MiB; whole pages go past the page cache where the file system allows it (staged_file.h)
/// Errors    base::FileError; CheckpointError if this rank does not see the folder. Returns early, with fewer hashes,
///           if `stop` is requested
std::vector<BlockHash> write_pieces(const SavePlan& plan, const std::filesystem::path& folder,
                                    std::span<const Piece> pieces, bool with_headers, const BytesDone& done,
                                    std::stop_token stop);

/// Reads `blocks` (ascending) back and hashes them. Errors and `stop` as above.
std::vector<BlockHash> hash_blocks(const SavePlan& plan, const std::filesystem::path& folder,
                                   std::span<const int64_t> blocks, const BytesDone& done, std::stop_token stop);

}  // namespace trireme::checkpoint
