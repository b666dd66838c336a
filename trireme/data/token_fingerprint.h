// One number for the contents of files. Files are read once, in pieces, because a mapping would count as the process's
// memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace trireme::data {

/// The fingerprint of a tokenized set: XXH3 of each file, mixed in order into `seed` (the tokenizer's fingerprint).
/// Errors    FileError
uint64_t fingerprint_files(uint64_t seed, std::span<const std::filesystem::path> files);

/// The hash of texts: XXH3 of all sizes and bytes in order. The same texts give the same number wherever they lie.
/// Errors    FileError
uint64_t content_hash(std::span<const std::filesystem::path> files);

}  // namespace trireme::data
