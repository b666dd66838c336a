// Measures the speed of the disk with plain system calls. It is the limit for saving and loading a
// checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trireme::bench {

/// Reserves the space of a new file of `bytes` bytes (so writing is faster), writes pieces of 8 MiB, and calls fsync.
/// Errors: base::FileError
void write_plainly(const std::filesystem::path& path, int64_t bytes);

/// Writes as `dd bs=4M conv=fsync` does: reserves nothing, writes pieces of 4 MiB. Errors: base::FileError
void write_as_dd(const std::filesystem::path& path, int64_t bytes);

/// Reads the whole file in pieces of 8 MiB; returns its bytes. Errors: base::FileError
int64_t read_plainly(const std::filesystem::path& path);

/// GB/s of a disk, and what they cost.
struct DiskRates {
  double both = 0;  ///< read and written at once
  double read = 0, write = 0;  ///< in one direction alone
  double work = 0;  ///< seconds of a core for a GB: checksums, and the kernel's part
};

/// Of the disk of `folder`, in the blocks, past the cache and with memory like the arena's as offloading does it,
/// `buffers` blocks at a time in each direction; zeros: the folder lies in memory, or has no room.
///
/// Cost      7 s, 128 MiB of memory, and 512 MiB of the disk
DiskRates offload_rates(const std::filesystem::path& folder, int64_t buffers);

/// Asks the system to drop the cached pages of every file below `path`, so that the next read is from the disk. The
/// files must have been flushed. Some file systems ignore this.
void drop_caches(const std::filesystem::path& path);

}  // namespace trireme::bench
