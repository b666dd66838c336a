// The manifest of a checkpoint: size and block checksums of every file in the folder.
//
// A block is 1 MiB, counted from the start of the file (the last block is shorter), and is hashed with XXH3-64. So a
// reader of any byte range verifies only the blocks that it touches. The manifest is written last and has a checksum of
// its own. A folder without a valid manifest is not a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

constexpr int64_t kBlockBytes = 1 << 20;
constexpr const char* kManifestName = "manifest.json";
constexpr const char* kStateName = "trireme_state.json";

/// Number of blocks of a file of `bytes` bytes.
constexpr int64_t num_blocks(int64_t bytes) { return bytes / kBlockBytes + (bytes % kBlockBytes > 0 ? 1 : 0); }

struct ManifestFile {
  int64_t bytes = 0;
  std::vector<uint64_t> blocks;  ///< hashes
};

struct Manifest {
  int64_t step = 0;
  std::string ruined;  ///< how the training had diverged when it saved this; empty: it had not (good.h)
  std::string left_behind;  ///< that a run went back to a step before it; empty: none did (good.h)
  std::map<std::string, ManifestFile> files;
};

/// True for the name of a file in the folder itself: no path, not hidden.
bool is_plain_name(std::string_view name);

/// The entry of a small file with these bytes.
ManifestFile describe(std::string_view bytes);

/// {"format": "trireme-checkpoint", "version": 1, "step", "ruined" and "left_behind" (each only where it applies),
///  "block_bytes", "files": {name: {bytes, blocks}}, "checksum"}
std::string manifest_to_json(const Manifest& manifest);

/// The text of a manifest with its "checksum" computed again; unchanged if it has none.
std::string with_own_checksum(std::string text);

/// Errors    CheckpointError naming `path` when the text is not a whole, undamaged manifest of version 1
Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace trireme::checkpoint
