// The manifest of a checkpoint: size and block checksums of every file in the folder.
//
// Blocks are fixed, 1 MiB from the start of the file (the last one shorter), hashed with XXH3-64, so that a
// reader of any byte range verifies just the blocks it touches. The manifest is written last and carries a
// checksum of itself: a folder without a sound manifest is not a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

constexpr int64_t kBlockBytes = 1 << 20;
constexpr const char* kManifestName = "manifest.json";
constexpr const char* kStateName = "trireme_state.json";

/// Number of blocks of a file of `bytes` bytes.
constexpr int64_t num_blocks(int64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }

struct ManifestFile {
  int64_t bytes = 0;
  std::vector<uint64_t> blocks;
};

struct Manifest {
  int64_t step = 0;
  std::string ruined;  ///< why the training that saved it had gone wrong; empty: it had not (good.h)
  std::map<std::string, ManifestFile> files;
};

/// True for the name of a file in the folder itself: no path, not hidden.
bool is_plain_name(std::string_view name);

/// The entry of a small file whose bytes are at hand.
ManifestFile describe(std::string_view bytes);

/// {"format": "trireme-checkpoint", "version": 1, "step", "ruined" (where it is), "block_bytes",
///  "files": {name: {bytes, blocks}}, "checksum"}
std::string manifest_to_json(const Manifest& manifest);

/// The same text with its own checksum put right, where it has one.
std::string with_own_checksum(std::string text);

/// Errors    CheckpointError naming `path` when the text is not a whole, undamaged manifest of version 1
Manifest parse_manifest(const std::string& text, const std::string& path);

/// The manifest in `folder`, or nothing when it is absent or damaged.
std::optional<Manifest> find_manifest(const std::filesystem::path& folder);

}  // namespace trireme::checkpoint
