// What the disk does with plain system calls: the limit of checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trireme::bench {

/// Reserves a new file of `bytes` bytes, which is faster, writes it in pieces of 8 MiB, and fsync; the file is left.
/// Errors: base::FileError
void write_plainly(const std::filesystem::path& path, int64_t bytes);

/// As `dd bs=4M conv=fsync` does: nothing reserved, pieces of 4 MiB. Errors: base::FileError
void write_as_dd(const std::filesystem::path& path, int64_t bytes);

/// Reads all of it, in pieces of 8 MiB; the bytes read. Errors: base::FileError
int64_t read_plainly(const std::filesystem::path& path);

/// Asks the system to drop the cached pages of every file below `path`, which were flushed before, so that the disk is
/// read. Some file systems do not listen.
void drop_caches(const std::filesystem::path& path);

}  // namespace trireme::bench
