// One number for the files of a tokenized set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace trireme::data {

/// XXH3 of each file, mixed in order on top of `seed` (the tokenizer's fingerprint).
///
/// Cost      reads the files once, in pieces: mapping them would count as this process's memory
/// Errors    FileError
uint64_t fingerprint_files(uint64_t seed, std::span<const std::filesystem::path> files);

}  // namespace trireme::data
